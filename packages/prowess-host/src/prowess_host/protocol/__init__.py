"""MCP without I/O: bytes in, values out."""
