"""Small files replaced atomically, and Kafka's text format for offsets by partition.

`replace_file` is atomic at any crash: write `<name>.tmp`, sync it, rename it over the old one, sync
the directory. Only then is the new content durable.

An offset checkpoint (`recovery-point-offset-checkpoint`, `log-start-offset-checkpoint`,
`cleaner-offset-checkpoint`, `replication-offset-checkpoint`) is text:

    0                      version
    2                      number of entries
    orders 0 1200          topic, partition, offset
    orders 1 7

A checkpoint that cannot be read is an error here; the caller decides what its absence means.
"""

from collections.abc import Mapping
from typing import Final

from penstock.core.errors import StorageError
from penstock.core.types import TopicPartition
from penstock.storage.disk.filesystem import FileSystem, write_fully

RECOVERY_POINT_FILE: Final = "recovery-point-offset-checkpoint"
LOG_START_FILE: Final = "log-start-offset-checkpoint"
CLEANER_FILE: Final = "cleaner-offset-checkpoint"
HIGH_WATERMARK_FILE: Final = "replication-offset-checkpoint"
_VERSION: Final = "0"


def replace_file(filesystem: FileSystem, directory: str, name: str, data: bytes) -> None:
    """Replace a file of `directory` so that a crash leaves the old content or the new one."""
    temporary = f"{directory}/{name}.tmp"
    file = filesystem.create_file(temporary)
    try:
        write_fully(file, data, 0)
        file.sync()
    finally:
        file.close()
    filesystem.rename(temporary, f"{directory}/{name}")
    filesystem.sync_directory(directory)


def format_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """The text of an offset checkpoint."""
    lines = [_VERSION, str(len(offsets))]
    lines += [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    return ("\n".join(lines) + "\n").encode()


def parse_offsets(data: bytes) -> dict[TopicPartition, int]:
    """Read an offset checkpoint; `StorageError` when it is not one.

    Apache Kafka creates empty files at its first start, so an empty one has no entries.
    """
    if not data:
        return {}
    try:
        lines = data.decode("ascii").splitlines()
        if lines[0] != _VERSION or len(lines) - 2 != int(lines[1]):
            raise StorageError("offset checkpoint: wrong version or number of entries")
        offsets = {}
        for line in lines[2:]:
            topic, partition, offset = line.split(" ")
            offsets[TopicPartition(topic, int(partition))] = int(offset)
    except (ValueError, IndexError) as error:
        raise StorageError(f"offset checkpoint cannot be read: {error}") from error
    return offsets
