"""`Manifest`: the description of a snapshot of one topic at an offset vector (pure).

    manifest.json                 this document; it is written last, in one step
    <id>-<partition>-<attempt>-<base offset>.log    record batches as a log stores them

A snapshot has, for each partition, the last committed value of each key in [start, end): the
records keep their offsets, timestamps and leader epochs, so the files are segments of a compacted
log. Tombstones, records without a key, aborted records and markers are not in it. The last batch of
a partition ends at `end_offset` - 1 and may be empty. The vector V is the end of each partition.

Guarantees: `read_manifest` accepts only a complete document of a known version whose checksum is
right and whose numbers fit each other; everything else raises `SnapshotError`. Files are found only
through a manifest, so files of a build that did not end are never read. Names of files cannot leave
the directory of the manifest.

It does NOT read files: `snapshot_files` does.
"""

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Final, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from penstock.core.limits import TOPIC_NAME_CHARACTERS_MAX
from penstock.edge.refresh.snapshot_errors import SnapshotError
from penstock.records.crc32c import checksum

MANIFEST_FILE: Final = "manifest.json"
FORMAT: Final = "penstock-refresh"
VERSION: Final = 1
MANIFEST_BYTES_MAX: Final = 33_554_432
"""About 10,000 partitions with 10 files each."""
PARTITIONS_MAX: Final = 20_000
FILES_MAX: Final = 100_000
"""Of one partition: 12 TB with files of 128 MiB."""
EPOCHS_MAX: Final = 100_000
EPOCH_MAX: Final = 2**30
"""A mirror gets this leader epoch, and needs higher ones later."""
OFFSET_MAX: Final = 2**63 - 2

FILE_NAME: Final = r"^[0-9a-f]{32}-[0-9]{1,10}-[0-9a-f]{8}-[0-9]{20}\.log$"

Offset = Annotated[int, Field(ge=0, le=OFFSET_MAX, strict=True)]
Count = Annotated[int, Field(ge=0, le=2**63 - 1, strict=True)]
Checksum = Annotated[int, Field(ge=0, lt=2**32, strict=True)]
Epoch = Annotated[int, Field(ge=0, le=EPOCH_MAX, strict=True)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SnapshotFile(_Model):
    """One segment."""

    name: Annotated[str, Field(pattern=FILE_NAME)]
    base_offset: Offset
    size_bytes: Count
    crc32c: Checksum
    records: Count


class SnapshotPartition(_Model):
    """The data of one partition."""

    partition: Annotated[int, Field(ge=0, lt=2**31, strict=True)]
    start_offset: Offset
    end_offset: Offset
    records: Count
    epochs: Annotated[tuple[tuple[Epoch, Offset], ...], Field(max_length=EPOCHS_MAX)]
    """Each leader epoch and its first offset, as in `leader-epoch-checkpoint`."""
    files: Annotated[tuple[SnapshotFile, ...], Field(max_length=FILES_MAX)]

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(one.size_bytes for one in self.files)

    def epoch_at(self, offset: int) -> int:
        """Return the leader epoch in which an offset was written; -1 if it is unknown."""
        number = bisect_right(self.epochs, offset, key=lambda entry: entry[1])
        return self.epochs[number - 1][0] if number else -1


class Manifest(_Model):
    """A snapshot of one topic."""

    format: Literal["penstock-refresh"]
    version: Literal[1]
    id: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    topic: Annotated[str, Field(pattern=r"^[a-zA-Z0-9._-]+$", max_length=TOPIC_NAME_CHARACTERS_MAX)]
    topic_id: UUID | None
    cluster_id: Annotated[str, Field(max_length=255)]
    created_ms: Count
    partitions: Annotated[tuple[SnapshotPartition, ...], Field(max_length=PARTITIONS_MAX)]

    @property
    def records(self) -> int:
        """Records of all partitions."""
        return sum(one.records for one in self.partitions)

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(one.size_bytes for one in self.partitions)

    @property
    def ends(self) -> dict[int, int]:
        """The offset vector V."""
        return {one.partition: one.end_offset for one in self.partitions}

    @property
    def file_names(self) -> set[str]:
        """The names of all files."""
        return {file.name for one in self.partitions for file in one.files}


def write_manifest(manifest: Manifest) -> bytes:
    """Return the document with its checksum."""
    _check(manifest)
    document = manifest.model_dump(mode="json")
    return json.dumps({**document, "checksum": _checksum(document)}, indent=1).encode() + b"\n"


def read_manifest(data: bytes) -> Manifest:
    """Return the manifest of a document; `SnapshotError` if it is not one."""
    if len(data) > MANIFEST_BYTES_MAX:
        raise SnapshotError(f"the manifest has more than {MANIFEST_BYTES_MAX} bytes")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise SnapshotError(f"the manifest is not JSON: {error}") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise SnapshotError("the document is not the manifest of a snapshot")
    if document.get("version") != VERSION:
        raise SnapshotError(
            f"the snapshot has version {str(document.get('version'))[:20]!r}, this program reads "
            f"version {VERSION}",
            hint="Build it again with the same version of Penstock, or update this one.",
        )
    found = document.pop("checksum", None)
    if found != _checksum(document):
        raise SnapshotError(
            "the checksum of the manifest is wrong: it is damaged, or was edited",
            hint="Build the snapshot again: `penstock refresh build`.",
        )
    try:
        manifest = Manifest.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise SnapshotError(f"the manifest is wrong at {place}: {first['msg']}") from error
    _check(manifest)
    return manifest


def _checksum(document: Mapping[str, object]) -> int:
    return checksum(json.dumps(document, sort_keys=True, separators=(",", ":")).encode())


def _check(manifest: Manifest) -> None:
    """Raise `SnapshotError` unless the numbers fit each other."""
    numbers = [one.partition for one in manifest.partitions]
    if numbers != list(range(len(numbers))) or not numbers:
        raise SnapshotError(f"the manifest does not have partitions 0 to {len(numbers) - 1}")
    seen: set[str] = set()
    for one in manifest.partitions:
        problem = _partition_problem(one)
        names = {file.name for file in one.files}
        if not problem and (len(names) < len(one.files) or names & seen):
            problem = "a file is listed twice"
        seen |= names
        if problem:
            raise SnapshotError(f"the manifest is wrong at partition {one.partition}: {problem}")


def _partition_problem(one: SnapshotPartition) -> str:
    if one.start_offset > one.end_offset:
        return f"it starts at {one.start_offset}, after its end {one.end_offset}"
    if (one.start_offset < one.end_offset) != bool(one.files):
        return f"it has {len(one.files)} files for {one.start_offset} to {one.end_offset}"
    if one.files and one.files[0].base_offset < one.start_offset:
        return "its first file begins before its start"
    bases = [file.base_offset for file in one.files]
    if not _rises(bases) or any(base >= one.end_offset for base in bases):
        return "its files are not in the order of their offsets"
    if sum(file.records for file in one.files) != one.records:
        return "its number of records is not that of its files"
    epochs, starts = [epoch for epoch, _ in one.epochs], [start for _, start in one.epochs]
    if not _rises(epochs) or not _rises(starts) or any(at >= one.end_offset for at in starts):
        return "its leader epochs do not rise"
    return ""


def _rises(numbers: Sequence[int]) -> bool:
    return all(left < right for left, right in pairwise(numbers))
