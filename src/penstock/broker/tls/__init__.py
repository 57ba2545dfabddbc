"""TLS between a socket and a connection of the listener."""
