"""The record of calls: every call of a project, without secrets, in a bounded database in the user's cache."""
