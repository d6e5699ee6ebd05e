"""The commands of a project, and how the host keeps the list up to date."""
