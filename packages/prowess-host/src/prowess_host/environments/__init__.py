"""Environments of skills: what a skill declares, where its environment lies, and how uv makes it."""
