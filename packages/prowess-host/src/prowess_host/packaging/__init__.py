"""A project as something to hand on: a wheel, a bundle for desktop clients, an entry of a registry. Pure: bytes out."""
