"""Finding skills, importing them, and compiling their commands."""
