"""Identities and credentials: values and decisions, without IO. Not part of storage or the wire."""
