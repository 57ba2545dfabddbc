"""Feature levels: the formats and requests that all brokers of a cluster understand."""
