"""`FilePlace`: the path of one file of a segment, also while compaction renames it.

A file is opened when it is needed, perhaps long after its segment became part of a log, by any
thread. Compaction may put another file under the same name meanwhile. So:

- the file of a new segment is looked for under its early name (`.cleaned`, later `.swap`), and from
  `.swap` on also under its own: it leaves the early name by a rename, so one of them is always it;
- the file of a segment that was replaced is `left` before any name changes, and opening it raises
  `FileNotFoundError` from then on, also for a thread that is just opening it: another file has its
  name now. Open handles stay valid.

It does not rename anything durably; `segment_swap` does, in its order.
"""

from penstock.storage.disk.filesystem import File, FileSystem


class FilePlace:
    """The path of one file."""

    __slots__ = ("_early_suffix", "_filesystem", "_is_left", "_is_moving", "path")

    def __init__(self, filesystem: FileSystem, path: str) -> None:
        self._filesystem = filesystem
        self.path = path
        """The name that it has or will have."""
        self._early_suffix = ""
        self._is_moving = False
        """Whether it may have left the early name already."""
        self._is_left = False

    def begin_early(self, suffix: str) -> None:
        """The file is created under another name first."""
        self._early_suffix = suffix

    def open(self) -> File:
        """The file, opened."""
        if self._early_suffix:
            try:
                return self._filesystem.open_file(self.path + self._early_suffix)
            except FileNotFoundError:
                if not self._is_moving:
                    raise
        file = self._filesystem.open_file(self.path)
        # Checked after opening, so that an earlier change of the name is noticed.
        if self._is_left:
            raise FileNotFoundError(f"{self.path} is another file now")
        return file

    def create(self) -> File:
        """Create the file anew and open it."""
        if self._is_left:
            raise FileNotFoundError(f"{self.path} is another file now")
        return self._filesystem.create_file(self.path + self._early_suffix)

    @property
    def modified_ms(self) -> int:
        """When the file was last written, in milliseconds since 1970."""
        if self._early_suffix:
            try:
                return self._filesystem.modified_ms(self.path + self._early_suffix)
            except FileNotFoundError:
                if not self._is_moving:
                    raise
        return self._filesystem.modified_ms(self.path)

    def set_modified_ms(self, modified_ms: int) -> None:
        """Set the time that `modified_ms` returns, under the present name."""
        self._filesystem.set_modified_ms(self.path + self._early_suffix, modified_ms)

    def rename(self, suffix: str) -> None:
        """Exchange the early name for another one, or for the own name if `suffix` is empty."""
        old = self.path + self._early_suffix
        if suffix:
            self._filesystem.rename(old, self.path + suffix)
            self._early_suffix = suffix
            self._is_moving = True
        else:
            # The early name stays known until the file has left it.
            self._filesystem.rename(old, self.path)
            self._early_suffix = ""

    def leave(self) -> None:
        """The name belongs to another file from now on."""
        self._is_left = True

    def remove(self) -> None:
        """Remove the present name."""
        self._filesystem.remove_file(self.path + self._early_suffix)
