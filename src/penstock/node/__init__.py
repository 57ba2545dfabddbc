"""Composition root: names every concrete class, starts the parts in order, stops in reverse."""
