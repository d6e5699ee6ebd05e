"""Limits of skills, enforced by the operating system."""
