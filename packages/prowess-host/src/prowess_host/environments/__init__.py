"""Environments of skills: declared dependencies, the folder of environments, and the builds with uv."""
