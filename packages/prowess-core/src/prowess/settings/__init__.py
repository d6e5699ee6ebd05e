"""Settings: where they come from, what they mean, and the folders of a project."""
