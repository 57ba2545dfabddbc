"""The files at the top of a data directory, and the names in it: Apache Kafka's, byte for byte.

    .lock                               held while a process uses the directory
    meta.properties                     version=1, cluster.id, node.id, directory.id
    .kafka_cleanshutdown                exists only after a clean stop
    recovery-point-offset-checkpoint    all data below is synced
    log-start-offset-checkpoint         all records below are deleted
    replication-offset-checkpoint       high watermarks of logs with replicas elsewhere: a hint
    <topic>-<partition>/                one log, with partition.metadata (version, topic_id)
    <topic>-<partition>.<id>-delete/    a log being deleted
    <topic>-<partition>.<id>-install/   a log that will replace one (`log_installation`)

The clean-stop marker is removed durably before any log is loaded, so that a crash while loading
counts as a crash. A recovery checkpoint that cannot be read counts as zero: everything is verified.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final
from uuid import UUID

from penstock.core.errors import StorageError
from penstock.core.limits import TOPIC_NAME_CHARACTERS_MAX
from penstock.core.types import TopicPartition
from penstock.storage.disk.checkpoint import parse_offsets, replace_file
from penstock.storage.disk.filesystem import FileSystem

LOCK_FILE: Final = ".lock"
CLEAN_FILE: Final = ".kafka_cleanshutdown"
META_FILE: Final = "meta.properties"
PARTITION_FILE: Final = "partition.metadata"
DELETE_SUFFIX: Final = "-delete"
INSTALL_SUFFIX: Final = "-install"
STRAY_SUFFIX: Final = "-stray"
_LOG_NAME: Final = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>[0-9]+)")
_NOT_OURS: Final = ("__cluster_metadata-0",)
"""Apache Kafka's own metadata log: Penstock keeps its metadata elsewhere."""
_FILE_NAME_MAX: Final = 255


def log_name(topic_partition: TopicPartition) -> str:
    """Name of a log's directory."""
    return f"{topic_partition.topic}-{topic_partition.partition}"


def parse_log_name(name: str) -> TopicPartition | None:
    """The partition whose log a directory of this name holds, or None."""
    match = _LOG_NAME.fullmatch(name)
    if match is None or name in _NOT_OURS or len(match["topic"]) > TOPIC_NAME_CHARACTERS_MAX:
        return None
    return TopicPartition(match["topic"], int(match["partition"]))


def deleted_name(topic_partition: TopicPartition, unique: str) -> str:
    """Name of a log's directory while it is being deleted; cut to the length of a file name."""
    return renamed(topic_partition, unique, DELETE_SUFFIX)


def stray_name(topic_partition: TopicPartition, unique: str) -> str:
    """Name of a log's directory that belongs to no topic."""
    return renamed(topic_partition, unique, STRAY_SUFFIX)


def renamed(topic_partition: TopicPartition, unique: str, suffix: str) -> str:
    """Name of a directory beside a log; cut to the length of a file name."""
    suffix = f"-{topic_partition.partition}.{unique}{suffix}"
    return topic_partition.topic[: _FILE_NAME_MAX - len(suffix)] + suffix


def format_topic_id(topic_id: UUID) -> str:
    """Kafka's text for an id: 16 bytes in URL-safe base64 without padding."""
    return urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def parse_topic_id(text: str) -> UUID:
    """Read Kafka's text for an id; `ValueError` when it is not one."""
    return UUID(bytes=urlsafe_b64decode(text + "=" * (-len(text) % 4)))


def format_partition_metadata(topic_id: UUID) -> bytes:
    """The file partition.metadata."""
    return f"version: 0\ntopic_id: {format_topic_id(topic_id)}".encode()


def parse_partition_metadata(data: bytes) -> UUID | None:
    """The topic id of a log, or None when the file has none."""
    for line in data.decode("ascii", "replace").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "topic_id":
            try:
                return parse_topic_id(value.strip())
            except ValueError:
                return None
    return None


def format_properties(properties: dict[str, str]) -> bytes:
    """The file meta.properties."""
    return "".join(f"{key}={value}\n" for key, value in properties.items()).encode()


def parse_properties(data: bytes) -> dict[str, str]:
    """Read a properties file; comments and empty lines are skipped."""
    properties = {}
    for line in data.decode("utf-8", "replace").splitlines():
        key, separator, value = line.partition("=")
        if separator and not line.startswith("#"):
            properties[key.strip()] = value.strip()
    return properties


def read_properties(filesystem: FileSystem, path: str) -> dict[str, str]:
    """meta.properties of a data directory; empty when there is none."""
    try:
        return parse_properties(filesystem.read_file(f"{path}/{META_FILE}"))
    except FileNotFoundError:
        return {}


def write_properties(filesystem: FileSystem, path: str, properties: dict[str, str]) -> None:
    """Replace meta.properties."""
    replace_file(filesystem, path, META_FILE, format_properties(properties))


def take_clean_marker(filesystem: FileSystem, path: str) -> bool:
    """Remove the marker durably; return whether the last stop was clean."""
    if CLEAN_FILE not in filesystem.list_directory(path):
        return False
    filesystem.remove_file(f"{path}/{CLEAN_FILE}")
    filesystem.sync_directory(path)
    return True


def write_clean_marker(filesystem: FileSystem, path: str) -> None:
    """Record that everything is synced and checkpointed."""
    replace_file(filesystem, path, CLEAN_FILE, b'{"version":0,"brokerEpoch":-1}')


def read_offsets(
    filesystem: FileSystem, path: str, name: str
) -> tuple[dict[TopicPartition, int], str]:
    """An offset checkpoint, and a note when it could not be read; then it counts as empty."""
    try:
        return parse_offsets(filesystem.read_file(f"{path}/{name}")), ""
    except FileNotFoundError:
        return {}, ""
    except StorageError as error:
        return {}, f"{path}/{name}: {error}; everything is verified"


def make_directories(filesystem: FileSystem, path: str) -> None:
    """Create a directory and its parents, durably."""
    if filesystem.is_directory(path):
        return
    parent = path.rpartition("/")[0] or ("/" if path.startswith("/") else ".")
    make_directories(filesystem, parent)
    filesystem.make_directory(path)
    filesystem.sync_directory(parent)
