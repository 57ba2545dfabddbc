"""The transports over confluent-kafka: consumer groups, share groups, replay of dead letters."""
