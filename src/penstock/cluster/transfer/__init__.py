"""The move of metadata between a data directory and a store for several brokers."""
