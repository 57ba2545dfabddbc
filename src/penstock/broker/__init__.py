"""Front door: the Kafka listener and its handlers."""
