"""Inputs and answers of operations, by their subject."""
