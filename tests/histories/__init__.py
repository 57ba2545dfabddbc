"""Histories of real clients under faults, for the checker (`tests/checker`).

`plan` defines a run; `worker` is a client in a process of its own that does random operations;
`recorder` starts, kills and replaces workers and collects their output; `nemesis` causes the
faults; `run` puts them together: load under faults, heal, read everything, check. It runs against
Penstock and against Apache Kafka: where both fail, the workload is wrong.
"""
