"""The `prowess` command line."""
