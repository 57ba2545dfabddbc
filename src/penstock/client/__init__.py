"""Kafka client: calls as values, connections that carry them, and the cluster behind them.

The client uses only Kafka's protocol, so all of it works against Apache Kafka too. It does not
replace the clients of each language. It has the features that the command line, Spark and our other
servers need.
"""
