"""Outgoing Kafka calls: calls as values, connections that carry them, the cluster behind them.

Speaks Kafka's protocol and nothing else, so all of it works against Apache Kafka too. It is not a
replacement for the clients of each language: it has what the command line, Spark and other servers
of ours need.
"""
