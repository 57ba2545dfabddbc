"""Directories of files, each with the way to open its storage.

A `Directory` is the text of a path or a URI, and may also have a `Storage`: the way from a text to
an open file system. So it can be used wherever a path is, and the storage reaches the tasks inside
the layout of their files.

Guarantees: a storage is pickled without secrets. It has the options as written in the definition,
with references instead of secrets, and the process that opens it resolves them. Each call opens it
anew, with the credentials of that moment. `reached` turns the error of an unreachable storage, or
of one that refuses those credentials, into a `StoreError` without secrets, so that the driver can
wait and write the batch again with newer ones.

This module knows no format: `formats.delta.storage` and `formats.iceberg.storage` implement it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, Self

from pyarrow import fs

from penstock.spark.errors import SparkQueryError
from penstock.spark.tables.definition.locations import local_path
from penstock.spark.tables.files.store_remedies import with_remedy


class StoreError(SparkQueryError):
    """The storage or the catalog of a table is unreachable, or refuses the credentials.

    It may pass: a store is restarted, keys are rotated.
    """


class Storage(Protocol):
    """The storage of one table's files; it can be pickled."""

    def open(self, directory: str) -> tuple[fs.FileSystem, str]:
        """Return the file system with the credentials of now, and the directory's path in it.

        Raises `StoreError` if a catalog that hands out the credentials is unreachable.
        """

    def hide(self, text: str) -> str:
        """Return a library's text without the secrets of this storage."""


class Directory(str):
    """A path or a URI, with its storage; without one, Arrow opens it."""

    __slots__ = ("storage",)
    storage: Storage | None

    def __new__(cls, place: str, storage: Storage | None = None) -> Self:
        """Create the directory; a directory keeps its storage."""
        made = super().__new__(cls, place)
        made.storage = storage if storage is not None else storage_of(place)
        return made

    def __reduce__(self) -> tuple[type["Directory"], tuple[str, Storage | None]]:
        return Directory, (str(self), self.storage)


def storage_of(place: str) -> Storage | None:
    """Return the storage of a directory; None for a plain text."""
    return place.storage if isinstance(place, Directory) else None


def below(place: str, folder: str) -> str:
    """Return a folder of a directory, in the same storage."""
    joined = f"{place.rstrip('/')}/{folder}" if folder else place.rstrip("/")
    storage = storage_of(place)
    return joined if storage is None else Directory(joined, storage)


@contextmanager
def reached(place: str) -> Iterator[None]:
    """Turn errors of a remote storage into `StoreError`; those of a local folder stay."""
    try:
        yield
    except OSError as error:
        if local_path(place) is not None or isinstance(error, FileNotFoundError):
            raise
        storage = storage_of(place)
        text = str(error).strip()
        reason = (text.splitlines() or [type(error).__name__])[0]
        hidden = reason if storage is None else storage.hide(reason)
        raise StoreError(
            with_remedy(f"files cannot be written or read in {place}: {hidden}", error)
        ) from None
