"""MCP clients on this machine: their files and limits, connecting a project to them, and trying the connection."""
