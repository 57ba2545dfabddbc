"""The gateways of this node over HTTP and WebSocket: listener, connections, identities."""
