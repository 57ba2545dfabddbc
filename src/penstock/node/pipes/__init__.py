"""Pipes of this broker: their mirrors, their tasks, and their operators' view."""
