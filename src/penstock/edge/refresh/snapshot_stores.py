"""Where a snapshot is stored: a directory, or a bucket.

Guarantees: `publish` replaces the manifest in one step, after all files are durable, so a reader
finds the old snapshot or the new one, complete. Files of a snapshot have names that no other build
uses. A missing file raises `SnapshotError`.

`open_store` accepts a path, or an address such as s3://bucket/folder, which needs pyarrow. It is
NOT a cache: each call reads the store.
"""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol

from penstock.edge.refresh.manifest import (
    FILE_NAME,
    MANIFEST_BYTES_MAX,
    MANIFEST_FILE,
    Manifest,
    read_manifest,
    write_manifest,
)
from penstock.edge.refresh.snapshot_errors import SnapshotError

_ADDRESS: Final = re.compile(r"[a-z][a-z0-9+.-]*://")
_OUR_FILE: Final = re.compile(FILE_NAME)


class SnapshotStore(Protocol):
    """One place for one snapshot."""

    def prepare(self) -> None:
        """Create the place if it does not exist."""
        ...

    @contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        """Yield a new file; it is durable when the block ends without an error."""
        ...

    @contextmanager
    def read(self, name: str) -> Iterator[BinaryIO]:
        """Yield an existing file."""
        ...

    def publish(self, data: bytes) -> None:
        """Replace the manifest, durably and in one step."""
        ...

    def names(self) -> list[str]:
        """Return the names of all files."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file."""
        ...


def open_store(place: str) -> SnapshotStore:
    """Return the store at a path or an address."""
    if place.startswith("file://"):
        return DirectoryStore(Path(place.removeprefix("file://")))
    if _ADDRESS.match(place):
        return _bucket(place)
    return DirectoryStore(Path(place))


def absolute_place(place: str) -> str:
    """Return an address that means the same in each process of this machine."""
    if _ADDRESS.match(place):
        return place
    return str(Path(place).expanduser().absolute())


class DirectoryStore:
    """`SnapshotStore` in a directory."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def prepare(self) -> None:
        """Create the directory."""
        self._path.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        """Yield a new file; it is synced, but its name is durable only after `publish`."""
        with (self._path / name).open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())

    @contextmanager
    def read(self, name: str) -> Iterator[BinaryIO]:
        """Yield an existing file."""
        with _explained(str(self._path), name), _open_at_once(self._path / name) as file:
            yield file

    def publish(self, data: bytes) -> None:
        """Sync all names, then replace the manifest by a rename."""
        self._sync()
        temporary = self._path / f"{MANIFEST_FILE}.tmp"
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._path / MANIFEST_FILE)
        self._sync()

    def names(self) -> list[str]:
        """Return the names of all files."""
        return [one.name for one in self._path.iterdir()]

    def remove(self, name: str) -> None:
        """Remove a file."""
        (self._path / name).unlink(missing_ok=True)

    def _sync(self) -> None:
        descriptor = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _open_at_once(path: Path) -> BinaryIO:
    """Open a file; a pipe without a writer does not block."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise SnapshotError(f"{path} is not a file")
    return os.fdopen(descriptor, "rb")


class ArrowStore:
    """`SnapshotStore` in a file system of pyarrow, such as a bucket: a put replaces in one step."""

    def __init__(self, filesystem: Any, path: str) -> None:  # noqa: ANN401 (pyarrow has no types)
        self._filesystem = filesystem
        self._path = path.rstrip("/")

    def prepare(self) -> None:
        """Create the folder, where the file system has folders."""
        with _explained(self._path, ""):
            self._filesystem.create_dir(self._path, recursive=True)

    @contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        """Yield a new file; it exists when it is closed."""
        with _explained(self._path, name):
            stream = self._filesystem.open_output_stream(f"{self._path}/{name}")
            with stream:
                yield stream

    @contextmanager
    def read(self, name: str) -> Iterator[BinaryIO]:
        """Yield an existing file."""
        with (
            _explained(self._path, name),
            self._filesystem.open_input_stream(f"{self._path}/{name}") as stream,
        ):
            yield stream

    def publish(self, data: bytes) -> None:
        """Replace the manifest with one put."""
        with self.create(MANIFEST_FILE) as stream:
            stream.write(data)

    def names(self) -> list[str]:
        """Return the names of all files."""
        selector = import_module("pyarrow.fs").FileSelector(self._path)
        found = self._filesystem.get_file_info(selector)
        return [one.base_name for one in found]

    def remove(self, name: str) -> None:
        """Remove a file."""
        with suppress(FileNotFoundError):
            self._filesystem.delete_file(f"{self._path}/{name}")


def _bucket(address: str) -> SnapshotStore:
    try:
        # By name: a broker imports pyarrow only for the address of a bucket.
        arrow, fs = import_module("pyarrow"), import_module("pyarrow.fs")
    except ImportError as error:
        raise SnapshotError(
            f"{address} needs pyarrow, which is not installed",
            hint="Install it: `pip install pyarrow`.",
        ) from error
    try:
        filesystem, path = fs.FileSystem.from_uri(address)
    except (arrow.ArrowException, OSError, ValueError) as error:
        raise SnapshotError(f"{address} cannot be used: {error}") from error
    return ArrowStore(filesystem, path)


@contextmanager
def _explained(place: str, name: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        if name == MANIFEST_FILE:
            raise SnapshotError(
                f"{place} has no snapshot: {MANIFEST_FILE} is missing",
                hint="Build one: `penstock refresh build TOPIC --to DIR`.",
            ) from error
        raise SnapshotError(
            f"{place}/{name} is missing: the snapshot was replaced or is incomplete",
            hint="Try again; build it again if that does not help.",
        ) from error


def load_manifest(store: SnapshotStore) -> Manifest:
    """Return the manifest of a store."""
    try:
        with store.read(MANIFEST_FILE) as file:
            data = file.read(MANIFEST_BYTES_MAX + 1)
    except OSError as error:
        raise SnapshotError(f"the manifest cannot be read: {error}") from error
    return read_manifest(data)


def commit_snapshot(store: SnapshotStore, manifest: Manifest) -> None:
    """Replace the snapshot of a store, then remove the files that no manifest names."""
    store.publish(write_manifest(manifest))
    kept = manifest.file_names
    for name in store.names():
        if _OUR_FILE.match(name) and name not in kept:
            store.remove(name)
