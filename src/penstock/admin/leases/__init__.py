"""Leases of sealed segments over HTTP."""
