"""The log engine in Apache Kafka's format: blocking code; only `service` uses asyncio."""
