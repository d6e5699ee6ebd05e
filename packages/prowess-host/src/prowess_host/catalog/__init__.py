"""What a project offers, and how that is kept true."""
