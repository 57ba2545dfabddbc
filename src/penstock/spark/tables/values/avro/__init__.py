"""Avro values to Arrow columns, by the schema of their writer."""
