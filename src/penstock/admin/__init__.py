"""Front door over HTTP: metrics, health and administration; the broker's Kafka side is `broker`."""
