"""Produce requests: batches checked, appended and answered."""
