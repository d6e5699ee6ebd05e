"""How contracts and results are shown to a kind of client."""
