"""Clusters: what replicas share, and workers on other machines. Imported only where `cluster.url` is set."""
