"""The log engine in Apache Kafka's format: plain blocking code with one asyncio door, `service`."""
