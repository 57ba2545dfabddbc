"""A seeded simulator: brokers, clients, network, disks and store in one process."""
