"""Packages a project as a wheel, a bundle for desktop clients, and a registry entry. Returns bytes; writes nothing."""
