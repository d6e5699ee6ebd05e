"""Injection: which objects commands get, and how long they live."""
