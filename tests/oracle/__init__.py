"""The real parts that tests compare Penstock with, and how both are run as processes.

Apache Kafka is the oracle: where it and Penstock disagree, Kafka is right. `kafka_broker` and
`penstock_broker` start either one behind the same `RunningBroker`, so that a test or a benchmark
does not know which it has.
"""
