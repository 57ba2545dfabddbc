"""`penstock materialize`: topics as tables of one SQLite file, with a REST interface.

A client of any Kafka cluster: it reaches brokers only over Kafka's protocol. It joins no consumer
group. Its positions are in the SQLite file, written in the same transaction as the rows.
"""
