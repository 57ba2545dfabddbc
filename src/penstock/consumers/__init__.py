"""`@penstock.consumer`: handlers for the records of a topic, with retry and dead letters.

`delivery` decides (pure), `running` calls the handlers, `kafka` connects to any Kafka by
confluent-kafka. All names are public as `penstock.consumer`, `penstock.RetryPolicy` and so on.
This package is a client: it reaches brokers only over the wire.
"""
