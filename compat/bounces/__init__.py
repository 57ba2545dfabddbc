"""Apache Kafka's verifiable clients while brokers are restarted one after the other."""
