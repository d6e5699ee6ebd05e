"""Contracts of commands: read from signatures, kept as plain data."""
