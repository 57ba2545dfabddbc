"""Metrics of the process, the logs, the groups and the limits."""
