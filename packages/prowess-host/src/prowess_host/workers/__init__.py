"""Worker processes: how they start, run calls and end."""
