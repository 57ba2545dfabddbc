"""The wire: framing, headers, messages, the codec and the connection state machines.

Sans-IO: everything here takes bytes and gives values, or the other way round. No socket, no loop,
no clock. Bytes from a peer are never trusted: each decoder accepts them or raises one of the
`PeerError`s of `core.errors`. What a request means is NOT known here; the broker's handlers do.
"""
