"""What is injected into commands, and how long it lives."""
