"""The wire: framing, headers, messages, the codec and the connection state machines.

Sans-IO: everything here turns bytes into values, or values into bytes. No socket, no loop, no
clock. Bytes from a peer are never trusted: each decoder accepts them or raises one of the
`PeerError`s of `core.errors`. The meaning of a request is NOT known here; the broker's handlers
know it.
"""
