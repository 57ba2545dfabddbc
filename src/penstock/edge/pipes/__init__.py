"""Pipes: copies of a parent's topics on this broker, with the parent's offsets and epochs."""
