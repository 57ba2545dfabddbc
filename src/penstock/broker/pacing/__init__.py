"""Bounds on work: turns of the event loop, slices, and budgets."""
