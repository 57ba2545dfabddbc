"""Refresh on a broker: snapshots in place of mirrors, and refreshes of push subscribers."""
