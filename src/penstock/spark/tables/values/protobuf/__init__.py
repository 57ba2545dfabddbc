"""Protobuf values to Arrow columns, by the message of a file or of a registry."""
