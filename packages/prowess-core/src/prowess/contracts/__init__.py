"""What is promised of a command: read from its signature, kept as plain data."""
