"""Files served as resources: folders from the settings, and skill folders with a `SKILL.md`."""
