"""The HTTP front door: metrics, health and administration; the Kafka side is `broker`."""
