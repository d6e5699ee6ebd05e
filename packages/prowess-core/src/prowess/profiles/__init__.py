"""Profiles: how contracts and results look to a kind of client."""
