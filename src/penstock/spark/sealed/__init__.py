"""Sealed segments: tasks read leased files of the broker instead of fetching."""
