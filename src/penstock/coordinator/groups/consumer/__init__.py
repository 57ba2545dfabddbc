"""Groups of the consumer protocol (KIP-848): heartbeats, reconciliation and migration."""
