"""Transactions of a cluster, and transactions of producers."""
