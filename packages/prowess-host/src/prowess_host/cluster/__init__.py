"""Beyond one machine: replicas that share what they know, and workers on other machines. Imported where `cluster.url` is set."""
