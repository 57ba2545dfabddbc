"""`FileWatch`: detects whether a file has changed and is no longer being written. Pure.

A look is the `stat` of a path, with links followed. So it differs for a file written in place, a
file renamed over it, and a link with a new target (as in Kubernetes). A change counts when two
looks in a row are equal: the writer has finished, since half a file may be valid by itself. A
deleted file is a change like any other. The caller calls `stat`.
"""

from typing import NamedTuple


class Look(NamedTuple):
    """The fields of `stat` that change with the content of a file."""

    device: int
    inode: int
    size_bytes: int
    modified_ns: int
    changed_ns: int


class FileWatch:
    """Compares looks at one file; None is the look of a missing file."""

    def __init__(self, taken: Look | None) -> None:
        """Start with `taken`, the look when the file was last read."""
        self._taken = taken
        self._last = taken

    def note(self, look: Look | None) -> bool:
        """Add a look; return whether the file must be read now."""
        is_at_rest = look == self._last
        self._last = look
        if look == self._taken or not is_at_rest:
            return False
        self._taken = look
        return True

    def was_read(self, look: Look | None) -> None:
        """Record that the file was read with this look, for another reason than this watch."""
        self._taken = self._last = look
