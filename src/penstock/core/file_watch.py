"""`FileWatch`: whether a file has changed and come to rest, from one look after the other. Pure.

A look is what `stat` says of a path, links followed: so a file that is written in place, one that
is renamed over it, and a link that is pointed elsewhere (as Kubernetes does) all look different. A
change counts when two looks in a row are the same: a writer in the middle of its work is let
finish, since half a file may be right by itself. A file that is gone is a change like any other.
Who looks, and when, is NOT known here.
"""

from typing import NamedTuple


class Look(NamedTuple):
    """What tells one content of a file from another without reading it."""

    device: int
    inode: int
    size_bytes: int
    modified_ns: int
    changed_ns: int


class FileWatch:
    """Compares looks at one file; None is a look at a file that is not there."""

    def __init__(self, taken: Look | None) -> None:
        """`taken` is how the file was when it was last read."""
        self._taken = taken
        self._last = taken

    def note(self, look: Look | None) -> bool:
        """Take a look into account; whether the file is to be read now."""
        is_at_rest = look == self._last
        self._last = look
        if look == self._taken or not is_at_rest:
            return False
        self._taken = look
        return True

    def was_read(self, look: Look | None) -> None:
        """The file was read when it was like this, for a reason that is not this watch."""
        self._taken = self._last = look
