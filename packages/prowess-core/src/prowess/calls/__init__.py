"""One call: its arguments, its policies, its context and its outcome."""
