"""`LeaseDirectory`: the files of one lease, as this machine sees them. Thin IO.

It reads whole index files, which are small, and single headers of batches. It writes nothing.
"""

import os
from pathlib import Path
from typing import Final

from penstock.core.errors import RecordsError
from penstock.records.batch import HEADER_BYTES, MAGIC, read_header
from penstock.spark.sealed.lease_answers import AbortedSpan, LeasePartition, LeaseSegment
from penstock.spark.sealed.segment_indexes import (
    IndexEntry,
    read_offset_index,
    read_transaction_index,
)

LEASES: Final = "leases"
INDEX_BYTES_MAX: Final = 67_108_864
"""An index of 64 MiB: of a segment of 2 GiB with an entry for each 256 bytes. A larger one is not
used, and the segment is read as one piece."""


class LeaseDirectory:
    """The files of a lease below a data directory."""

    def __init__(self, data_directory: str, lease_id: str) -> None:
        self._path = Path(data_directory) / LEASES / lease_id

    @property
    def path(self) -> str:
        """The directory of the lease."""
        return str(self._path)

    def has(self, partition: LeasePartition) -> bool:
        """Return whether all segments of a partition are here, with their sizes."""
        try:
            return all(
                (self._path / one.file_name(partition.partition, ".log")).stat().st_size
                >= one.size_bytes
                for one in partition.segments
            )
        except OSError:
            return False

    def log_path(self, partition: int, segment: LeaseSegment) -> str:
        """Return the data file of a segment."""
        return str(self._path / segment.file_name(partition, ".log"))

    def offset_index(self, partition: int, segment: LeaseSegment) -> list[IndexEntry]:
        """Return the entries of a segment's offset index; none if it cannot be read."""
        if not segment.has_offset_index:
            return []
        path = self._path / segment.file_name(partition, ".index")
        try:
            if path.stat().st_size > INDEX_BYTES_MAX:
                return []
            return read_offset_index(path.read_bytes(), segment.base_offset, segment.size_bytes)
        except OSError:
            return []

    def aborted(self, partition: LeasePartition) -> list[AbortedSpan]:
        """Return the aborted transactions of all segments, in order of markers; may raise."""
        found = list(partition.aborted)
        for segment in partition.segments:
            if segment.has_transaction_index:
                path = self._path / segment.file_name(partition.partition, ".txnindex")
                found += read_transaction_index(path.read_bytes(), str(path))
        return sorted(found, key=lambda one: one.last_offset)

    def first_offset(self, partition: int, segment: LeaseSegment, entry: IndexEntry) -> int | None:
        """Return the base offset of an entry's batch; None unless the entry is right."""
        descriptor = -1
        try:
            descriptor = os.open(self.log_path(partition, segment), os.O_RDONLY | os.O_CLOEXEC)
            data = os.pread(descriptor, HEADER_BYTES, entry.position)
        except OSError:
            return None
        finally:
            if descriptor >= 0:
                os.close(descriptor)
        if len(data) < HEADER_BYTES:
            return None
        try:
            header = read_header(data)
        except RecordsError:
            return None
        is_right = (
            header.magic == MAGIC
            and header.last_offset == entry.last_offset
            and segment.base_offset <= header.base_offset <= header.last_offset
        )
        return header.base_offset if is_right else None
