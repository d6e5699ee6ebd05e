"""What changed in a catalog, whom that breaks, and what hurts clients."""
