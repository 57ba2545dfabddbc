"""Reassignment: replicas of partitions move to other brokers."""
