"""Compares catalogs, and reports which callers and clients a change breaks."""
