"""Leases of sealed segments of this node."""
