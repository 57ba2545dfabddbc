"""The edge: push delivery, pipes between brokers, the registry of sites; off by default."""
