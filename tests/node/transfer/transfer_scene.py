"""A data directory with metadata of every kind, a store for a cluster, and crashes between steps.

`Directory` is the directory of a broker that ran alone: it has no logs. `CrashingStore` and
`CrashingDisk` count the effects of a transfer; each has a point before it and a point after it, and
`Points.crash_at` ends the transfer at one of them, as kill -9 does.
"""

import copy
import shutil
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from uuid import UUID

from penstock.cluster import values
from penstock.cluster.image import MetadataImage, PartitionImage
from penstock.cluster.keys import ALL_BROKERS, DEFAULT_ROOT, Keys
from penstock.cluster.link.followed_image import FollowedImage
from penstock.cluster.link.transfer_mark import TransferRefusedError
from penstock.cluster.quota_entities import entity_of
from penstock.cluster.stores.port import (
    Compare,
    Delete,
    EventBatch,
    MetadataStore,
    Operation,
    Put,
    Snapshot,
    TransactionResult,
)
from penstock.cluster.stores.sqlite_store import SqliteMetadataStore
from penstock.core.errors import ConfigError
from penstock.node.identity import METADATA_FILE, check_alone, check_joining
from penstock.node.transfer.exporting import export_cluster
from penstock.node.transfer.importing import TransferReport, import_directory
from penstock.node.transfer.settling import settle_at_start
from penstock.security.acls.values import (
    AclBinding,
    PatternType,
    Permission,
    ResourceType,
)
from penstock.security.acls.values import (
    Operation as AclOperation,
)
from penstock.security.scram_credential import ScramCredential
from penstock.storage.disk.data_directory import (
    CLEAN_FILE,
    format_properties,
    make_directories,
)
from penstock.storage.disk.filesystem import DiskFileSystem, File
from penstock.testing.memory_store import MemoryMetadataStore

CLUSTER_ID = "AoiVrXEJTO24QuSBQbC-Rw"
ROOT = "/penstock/production/"
KEYS = Keys(DEFAULT_ROOT)
ORDERS, DOTTED, OLD, UNPUBLISHED = (UUID(int=number) for number in (1, 2, 3, 4))
LARGE_COUNT = 230
"""Partitions of the largest topic: its states need several transactions."""


def state(epoch: int = 0, **more: object) -> bytes:
    """Return the state of a partition of a broker alone, in its seventh registration."""
    image = PartitionImage((1,), 1, epoch, (1,), 0, 7, (7,))
    return values.write_partition(image._replace(**more))  # type: ignore[arg-type]


def metadata() -> dict[str, bytes]:
    """Return keys of every kind, as brokers of this and of earlier versions wrote them."""
    acl = AclBinding(
        ResourceType.TOPIC,
        "orders",
        PatternType.LITERAL,
        "User:alice",
        "*",
        AclOperation.READ,
        Permission.ALLOW,
    )
    credential = ScramCredential(b"salt", b"stored", b"server", 4096)
    return {
        KEYS.format(): values.write_format(),
        KEYS.cluster_id(): values.write_cluster_id(CLUSTER_ID),
        KEYS.adopted(): values.write_adopted(),
        KEYS.login_secret(): b"00" * 32,
        KEYS.node(1): values.write_node("directory"),
        KEYS.topic("orders"): values.write_topic(values.TopicValue(ORDERS, LARGE_COUNT)),
        **{KEYS.partition(ORDERS, index): state(index) for index in range(LARGE_COUNT)},
        KEYS.topic_settings("orders"): values.write_settings({"retention.ms": "5"}),
        KEYS.topic("a.b"): values.write_topic(values.TopicValue(DOTTED, 1)),
        KEYS.partition(DOTTED, 0): state(3, min_isr=2),
        KEYS.name("a_b"): values.write_name("a.b"),
        # An earlier version wrote it: states of version 1, and no key for its name.
        KEYS.topic("old_one"): values.write_topic(values.TopicValue(OLD, 1, is_adopted=True)),
        KEYS.partition(OLD, 0): b'{"v":1,"replicas":[1],"leader":1,"leader_epoch":8,"isr":[1]}',
        KEYS.partition(UNPUBLISHED, 0): state(),
        KEYS.group_settings("a/b"): values.write_settings({"consumer.session.timeout.ms": "50000"}),
        KEYS.broker_settings("1"): values.write_settings({"log.retention.ms": "5"}),
        KEYS.broker_settings(ALL_BROKERS): values.write_settings({"log.retention.ms": "6"}),
        KEYS.quotas(entity_of([("user", "alice")])): values.write_quotas({"producer_byte_rate": 1}),
        KEYS.acl(UUID(int=9)): values.write_acl(acl),
        KEYS.acl_removal(UUID(int=10)): values.write_acl_removal([UUID(int=11)]),
        KEYS.scram("SCRAM-SHA-512", "alice"): values.write_scram(credential, 1),
        KEYS.declaration("orders"): values.write_declared(
            values.SetByFile(ORDERS, {"retention.ms": "5"})
        ),
        KEYS.producer_ids(): values.write_next_producer_id(3000),
    }


class Directory:
    """The data directory of a broker."""

    def __init__(self, path: Path, broker_id: int = 1) -> None:
        self.path = str(path)
        self.broker_id = broker_id

    async def fill(self, more: dict[str, bytes] | None = None) -> "Directory":
        """Write the files of a broker that ran alone and has stopped."""
        make_directories(DiskFileSystem(), self.path)
        properties = {
            "version": "1",
            "cluster.id": CLUSTER_ID,
            "node.id": str(self.broker_id),
            "directory.id": "directory",
        }
        self.write("meta.properties", format_properties(properties))
        self.write(CLEAN_FILE, b"{}")
        await self.put({**metadata(), **(more or {})})
        return self

    def write(self, name: str, content: bytes) -> None:
        Path(self.path, name).write_bytes(content)

    def text(self, name: str) -> str:
        return Path(self.path, name).read_text()

    def remove(self, name: str) -> None:
        Path(self.path, name).unlink()

    def names(self) -> set[str]:
        return {one.name for one in Path(self.path).iterdir()} - {".lock"}

    async def put(self, pairs: dict[str, bytes]) -> None:
        store = await SqliteMetadataStore.open(f"{self.path}/{METADATA_FILE}")
        puts = [Put(key, value) for key, value in pairs.items()]
        for start in range(0, len(puts), 100):
            await store.transact((), puts[start : start + 100])
        await store.close()

    async def delete(self, *keys: str) -> None:
        store = await SqliteMetadataStore.open(f"{self.path}/{METADATA_FILE}")
        await store.transact((), [Delete(key) for key in keys])
        await store.close()

    async def image(self) -> MetadataImage:
        """Load the metadata file as a broker does."""
        store = await SqliteMetadataStore.open(f"{self.path}/{METADATA_FILE}")
        try:
            return await loaded(store, KEYS)
        finally:
            await store.close()

    async def import_(
        self, store: MetadataStore, disk: DiskFileSystem | None = None, *, only_checks: bool = False
    ) -> TransferReport:
        disk = disk or DiskFileSystem()
        return await import_directory(disk, self.path, store, ROOT, only_checks=only_checks)

    async def export(
        self, store: MetadataStore, disk: DiskFileSystem | None = None, *, only_checks: bool = False
    ) -> TransferReport:
        disk = disk or DiskFileSystem()
        return await export_cluster(disk, self.path, store, ROOT, only_checks=only_checks)

    def copied(self, path: Path) -> "Directory":
        shutil.copytree(self.path, path)
        return Directory(path, self.broker_id)

    # --- The two ways to start ---

    async def starts_alone(self) -> bool:
        """Return whether a broker starts alone, with all topics."""
        try:
            check_alone(DiskFileSystem(), self.path)
        except ConfigError:
            return False
        return len((await self.image()).topics) == 3

    async def starts_in_cluster(self, store: MetadataStore) -> bool:
        """Return whether the broker starts in the cluster, with all topics; a transfer ends."""
        disk = DiskFileSystem()
        try:
            check_joining(disk, self.path, METADATA_FILE)
            await settle_at_start(disk, self.path, store, ROOT)
        except (ConfigError, TransferRefusedError):
            return False
        image = await loaded(store, Keys(ROOT))
        return image.cluster_id == CLUSTER_ID and len(image.topics) == 3


async def loaded(store: MetadataStore, keys: Keys) -> MetadataImage:
    """Load an image as a broker does."""
    followed = FollowedImage(store, keys)
    await followed.reload()
    return followed.newest


class Crash(BaseException):
    """The process ends."""


class Points:
    """The points of a transfer at which it may crash."""

    def __init__(self, crash_at: int | None = None) -> None:
        self.crash_at = crash_at
        self.passed = 0

    def pass_one(self) -> None:
        if self.passed == self.crash_at:
            self.passed += 1
            raise Crash
        self.passed += 1
        if self.crash_at is not None and self.passed > self.crash_at:
            raise Crash  # a process that has ended does nothing more


class CrashingStore:
    """A store whose user may crash before or after each transaction."""

    def __init__(self, shared: MemoryMetadataStore, points: Points) -> None:
        self._shared = shared
        self._points = points

    async def read(self, key: str, *, revision: int | None = None) -> Snapshot:
        return await self._shared.read(key, revision=revision)

    async def read_prefix(self, prefix: str, *, revision: int | None = None) -> Snapshot:
        return await self._shared.read_prefix(prefix, revision=revision)

    async def transact(
        self,
        compares: Sequence[Compare],
        operations: Sequence[Operation],
        *,
        read_on_failure: Sequence[str] = (),
    ) -> TransactionResult:
        self._points.pass_one()
        result = await self._shared.transact(compares, operations, read_on_failure=read_on_failure)
        self._points.pass_one()
        return result

    def watch(self, prefix: str, *, from_revision: int) -> AsyncIterator[EventBatch]:
        return self._shared.watch(prefix, from_revision=from_revision)

    async def open_session(self, time_to_live_seconds: float) -> int:
        return await self._shared.open_session(time_to_live_seconds)

    async def keep_alive(self, session: int) -> None:
        await self._shared.keep_alive(session)

    async def end_session(self, session: int) -> None:
        await self._shared.end_session(session)

    async def close(self) -> None:
        """Leave the shared store open."""


class CrashingDisk(DiskFileSystem):
    """A disk whose user may crash before or after each change of a directory."""

    def __init__(self, points: Points) -> None:
        super().__init__()
        self._points = points

    def create_file(self, path: str) -> File:
        self._points.pass_one()
        file = super().create_file(path)
        self._points.pass_one()
        return file

    def rename(self, source: str, target: str) -> None:
        self._points.pass_one()
        super().rename(source, target)
        self._points.pass_one()

    def remove_file(self, path: str) -> None:
        self._points.pass_one()
        super().remove_file(path)
        self._points.pass_one()


def copied(store: MemoryMetadataStore) -> MemoryMetadataStore:
    """Return a store with the same keys and revisions."""
    other = MemoryMetadataStore()
    other._revision = store._revision
    other._versions = copy.copy(store._versions)
    other._sessions = dict(store._sessions)
    other._session_last = store._session_last
    return other
