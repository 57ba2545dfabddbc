"""Histories of real clients under faults, for the checker (`tests/checker`).

`plan` says what a run is; `worker` is a client in a process of its own that does random operations;
`recorder` starts, kills and replaces workers and collects what they tell; `nemesis` makes the
faults; `run` puts them together: load under faults, heal, read everything, check. It runs against
Penstock and against Apache Kafka: where both fail, the workload is wrong.
"""
