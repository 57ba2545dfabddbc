"""Transactions: who may write as which producer, and how each transaction ends."""
