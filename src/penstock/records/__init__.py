"""Data: record batches as views over bytes, in Kafka's format v2; no IO, no clock."""
