"""Transactions: which client may write with which producer id, and how each transaction ends."""
