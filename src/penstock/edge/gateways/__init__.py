"""Push over WebSocket, and records over HTTP and server-sent events."""
