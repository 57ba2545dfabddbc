"""`FileWatch`: detects whether a file has changed and is no longer being written. Pure.

A look is the `stat` of a path, links followed: so a file that is written in place, one that is
renamed over it, and a link that is pointed elsewhere (as Kubernetes does) all look different. A
change counts when two looks in a row are the same: a writer can finish, since half a file may be
valid by itself. A deleted file is a change like any other. The caller takes the looks.
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
    """Compares looks at one file; None is a look at a file that does not exist."""

    def __init__(self, taken: Look | None) -> None:
        """`taken` is the look when the file was last read."""
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
        """The file was read with this look, for another reason than this watch."""
        self._taken = self._last = look
