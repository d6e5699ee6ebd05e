"""Checks a project and its connections, from the interpreter to each client."""
