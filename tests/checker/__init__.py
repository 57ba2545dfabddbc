"""A checker of histories: whether the answers to clients are possible on a correct log.

Guarantees: it knows nothing of Penstock, of Apache Kafka and of client libraries. It gets a list of
operations (`history`), as clients invoked and completed them, and names every anomaly with the
operations that show it (`check`). An operation with an unknown outcome may have happened or not:
the checker never reports an anomaly that one of the two would explain.

It is NOT a search for linearizability: each anomaly is a rule of its own, in time that is linear
in the history.
"""
