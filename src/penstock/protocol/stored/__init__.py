"""Records that coordinators store in internal topics, in Kafka's own schemas."""
