"""Files that are served as resources: those of folders that a setting names, and those of skills with a `SKILL.md`."""
