"""Texts of commands: records, settings, suggestions, and lines of input."""
