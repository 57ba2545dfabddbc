"""The sink `format("penstock")`: writers, tasks, and the exactly-once protocol of streams."""
