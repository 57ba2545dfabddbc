"""Tables in the Iceberg format, written with pyiceberg."""
