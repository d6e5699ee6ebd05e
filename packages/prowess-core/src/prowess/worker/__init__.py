"""The process that imports skills and runs commands for a host."""
