"""Errors of snapshots."""

from penstock.core.errors import PenstockError


class SnapshotError(PenstockError):
    """A snapshot is missing, incomplete, damaged, or does not fit; nothing was replaced."""
