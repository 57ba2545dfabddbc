"""Values that are changes of a database's rows: Debezium's events, and their order."""
