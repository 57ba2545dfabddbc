"""Decisions about deliveries: order, retries, positions, dead letters. No IO, no clock."""
