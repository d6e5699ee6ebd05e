"""Settings: where they are read from, what they mean, and the folders of a project."""
