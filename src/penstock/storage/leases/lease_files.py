"""`LeaseFiles`: the directories of leases in one data directory.

    leases/<id>/lease.json                           the lease (`lease_rules.LeaseNote`)
    leases/<id>/<partition>-<base, 20 digits>.log    hard links of a segment and of its indexes
    leases/<id>.partial/                             a lease that is being created or removed

Guarantees: a directory gets its final name when all its links and its file are durable, and loses
it before the first link is removed. So a crash between any two steps leaves a whole lease, or a
`.partial` directory, which the next start removes. `remove` raises `OSError` unless the name is
gone, durably. The methods may run on several threads at once. Names of other forms are not touched.
The directory `leases` exists only while it has a lease.

Blocking code for worker threads. It decides nothing, and has no state but the directories whose
removal failed.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from threading import Lock
from typing import Final

from penstock.storage.disk.filesystem import FileSystem, write_fully
from penstock.storage.leases.lease_rules import LEASE_ID, LeaseNote, note_bytes, read_note
from penstock.storage.managed_directory import remove_tree

LEASES_DIRECTORY: Final = "leases"
NOTE_FILE: Final = "lease.json"
PARTIAL_SUFFIX: Final = ".partial"


class LeaseFiles:
    """The leases in one data directory."""

    def __init__(self, filesystem: FileSystem, data_directory: str) -> None:
        self._filesystem = filesystem
        self._data_directory = data_directory
        self.path = f"{data_directory}/{LEASES_DIRECTORY}"
        self._lock = Lock()
        """Held while directories are created or removed."""
        self._doomed: list[str] = []
        """Directories to remove: their last removal failed, or a crash left them."""
        self._is_unchecked = False
        """Whether `leases` may be empty: a crash left it."""
        self._is_unsynced = False
        """Whether a name is gone that is still on the disk."""

    def load(self) -> list[LeaseNote]:
        """Return the whole leases; `clean` removes the remains of other ones."""
        notes = []
        if not self._filesystem.is_directory(self.path):
            return []
        self._is_unchecked = True
        for name in self._filesystem.list_directory(self.path):
            if LEASE_ID.fullmatch(name):
                note = self._read(name)
                if note is not None and note.lease_id == name:
                    notes.append(note)
                    continue
            elif not LEASE_ID.fullmatch(name.removesuffix(PARTIAL_SUFFIX)):
                continue
            self._doomed.append(f"{self.path}/{name}")
        return notes

    def create(self, note: LeaseNote, links: Iterable[tuple[str, str]]) -> None:
        """Link files into a new lease, durably; `links` has a path and a name for each.

        After an error nothing of the lease is served, and its links are removed.
        """
        with self._lock:
            self._create(note, links)

    def _create(self, note: LeaseNote, links: Iterable[tuple[str, str]]) -> None:
        filesystem = self._filesystem
        if not filesystem.is_directory(self.path):
            filesystem.make_directory(self.path)
            filesystem.sync_directory(self._data_directory)
        partial = f"{self.path}/{note.lease_id}{PARTIAL_SUFFIX}"
        try:
            filesystem.make_directory(partial)
            file = filesystem.create_file(f"{partial}/{NOTE_FILE}")
            try:
                write_fully(file, note_bytes(note), 0)
                file.sync()
            finally:
                file.close()
            for source, name in links:
                filesystem.link_file(source, f"{partial}/{name}")
            filesystem.sync_directory(partial)
            filesystem.rename(partial, f"{self.path}/{note.lease_id}")
            filesystem.sync_directory(self.path)
        except OSError:
            self._doomed += [partial, f"{self.path}/{note.lease_id}"]
            self._clean()
            raise

    def remove(self, lease_id: str) -> None:
        """End a lease: its name goes first, so that no reader finds half of it.

        Raises `OSError` if the name is still there, or is still on the disk. A failed removal of
        the links is not an error: `clean` repeats it.
        """
        path = f"{self.path}/{lease_id}"
        with self._lock:
            try:
                self._filesystem.rename(path, path + PARTIAL_SUFFIX)
            except FileNotFoundError:
                pass  # Its name is gone; whether durably is not known.
            else:
                self._doomed.append(path + PARTIAL_SUFFIX)
                self._is_unsynced = True
            self._sync()
            self._clean()

    def _sync(self) -> None:
        if self._is_unsynced:
            self._filesystem.sync_directory(self.path)
            self._is_unsynced = False

    def clean(self) -> None:
        """Remove the remains of leases; a removal that fails is repeated by the next call."""
        with self._lock:
            self._clean()

    def _clean(self) -> None:
        try:
            # A crash must not leave the name of a lease with a part of the links.
            self._sync()
        except OSError:
            return
        doomed, self._doomed, self._is_unchecked = self._doomed, [], False
        for path in doomed:
            try:
                remove_tree(self._filesystem, path)
            except OSError:
                self._doomed.append(path)
        if not self._doomed:
            with suppress(OSError):  # it has other leases
                self._filesystem.remove_directory(self.path)

    @property
    def remain_count(self) -> int:
        """The directories whose removal failed; they keep disk space."""
        return len(self._doomed)

    @property
    def has_remains(self) -> bool:
        """Whether `clean` has work."""
        return bool(self._doomed) or self._is_unchecked

    def held_bytes(self, lease_id: str, sharing: Iterable[str]) -> int:
        """Return the bytes of a lease that its log does not have any more.

        `sharing` has the leases of the same topic in this data directory, this one among them: they
        may have other names of the same files.
        """
        names = Counter(number for other in sharing for number, _ in self._numbered(other))
        held_bytes = 0
        for number, path in self._numbered(lease_id):
            with suppress(FileNotFoundError):
                if self._filesystem.link_count(path) <= names[number]:
                    held_bytes += self._filesystem.file_size(path)
        return held_bytes

    def _numbered(self, lease_id: str) -> Iterator[tuple[int, str]]:
        """Return the linked files with their numbers; none of a lease that has ended."""
        directory = f"{self.path}/{lease_id}"
        names: Iterable[str] = ()
        with suppress(FileNotFoundError):
            names = self._filesystem.list_directory(directory)
        for name in names:
            path = f"{directory}/{name}"
            if name != NOTE_FILE:
                with suppress(FileNotFoundError):
                    yield self._filesystem.file_number(path), path

    def _read(self, name: str) -> LeaseNote | None:
        try:
            return read_note(self._filesystem.read_file(f"{self.path}/{name}/{NOTE_FILE}"))
        except OSError:
            return None
