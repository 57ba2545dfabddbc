"""An import carries everything into a cluster, and an export back; both refuse with reasons."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from uuid import UUID

import pytest

from penstock.cluster import values
from penstock.cluster.image import BrokerImage, Endpoint, MetadataImage
from penstock.cluster.keys import ALL_BROKERS, Keys
from penstock.cluster.link.followed_image import FollowedImage
from penstock.cluster.link.founding import found_cluster
from penstock.cluster.link.membership import Membership
from penstock.cluster.link.transfer_mark import Direction, Transfer, TransferRefusedError
from penstock.cluster.stores.port import Compare, Operation, Put, TransactionResult
from penstock.cluster.transfer.transfer_store import TransferStore
from penstock.core.errors import AmbiguousStoreError, ConfigError, PenstockError, StoreError
from penstock.core.types import PLAINTEXT
from penstock.node.identity import METADATA_FILE, check_alone, check_joining
from penstock.node.transfer.directory_state import (
    DRAFT_FILE,
    NOTE_FILE,
    SET_ASIDE_FILE,
    lock_directory,
)
from penstock.node.transfer.exporting import export_cluster
from penstock.node.transfer.settling import settle_at_start
from penstock.storage.disk.data_directory import CLEAN_FILE
from penstock.storage.disk.filesystem import DiskFileSystem
from penstock.testing.memory_store import Fault, MemoryMetadataStore
from tests.node.transfer.transfer_scene import (
    CLUSTER_ID,
    DOTTED,
    KEYS,
    OLD,
    ORDERS,
    ROOT,
    UNPUBLISHED,
    Directory,
    loaded,
    metadata,
    state,
)

TARGET = Keys(ROOT)
Body = Callable[[Directory, MemoryMetadataStore], Awaitable[None]]


def run(tmp_path: Path, body: Body, more: dict[str, bytes] | None = None) -> None:
    async def main() -> None:
        await body(await Directory(tmp_path / "d").fill(more), MemoryMetadataStore())

    asyncio.run(main())


def without_revisions(image: MetadataImage) -> dict[str, object]:
    """Return the parts of an image that a transfer keeps."""
    return {
        "cluster id": image.cluster_id,
        "topics": {
            topic.name: (
                topic.id,
                topic.settings,
                topic.is_adopted,
                [(one.leader_epoch, one.replicas, one.min_isr) for one in topic.partitions],
            )
            for topic in image.topics.values()
        },
        "groups": {name: one.settings for name, one in image.groups.items()},
        "brokers": {name: one.settings for name, one in image.broker_settings.items()},
        "quotas": {entity: one.quotas for entity, one in image.quotas.items()},
        "acls": dict(image.acls.items()),
        "removals": dict(image.acl_removals),
        "users": {key: (one.credential, one.created_ms) for key, one in image.scram.items()},
        "producer ids": image.next_producer_id,
    }


OTHERS = (KEYS.adopted(), KEYS.login_secret(), KEYS.declaration("orders"))


def test_everything_is_there_and_back(tmp_path: Path) -> None:
    async def body(directory: Directory, store: MemoryMetadataStore) -> None:
        before = await directory.image()
        report = await directory.import_(store)
        assert report.counts == {
            "topics": 3,
            "partitions": 232,
            "users": 1,
            "access rules": 1,
            "quotas": 1,
            "settings of groups": 1,
            "settings of brokers": 2,
        }
        image = await loaded(store, TARGET)
        assert without_revisions(image) == without_revisions(before)
        assert directory.names() == {"meta.properties", CLEAN_FILE, SET_ASIDE_FILE, NOTE_FILE}
        assert f"--data-dir {directory.path}" in directory.text(NOTE_FILE)
        # Keys that are not in an image.
        for key in OTHERS:
            (pair,) = (await store.read(key.replace(KEYS.root, ROOT))).values
            assert pair.value == metadata()[key]
        assert not (await store.read(TARGET.transfer())).values
        again = await directory.export(store)
        assert again.counts == report.counts
        assert without_revisions(await directory.image()) == without_revisions(before)
        assert directory.names() == {"meta.properties", CLEAN_FILE, METADATA_FILE}
        assert not (await store.read_prefix("/")).values

    run(tmp_path, body)


def test_states_in_the_cluster(tmp_path: Path) -> None:
    """They name the broker's disk, no leader, and the leader epochs of before, in version 2."""

    async def body(directory: Directory, store: MemoryMetadataStore) -> None:
        await directory.import_(store)
        image = await loaded(store, TARGET)
        since = image.nodes[1]
        assert since.directory_id == "directory"
        for topic_id, index, epoch in ((ORDERS, 7, 7), (DOTTED, 0, 3), (OLD, 0, 8)):
            (pair,) = (await store.read(TARGET.partition(topic_id, index))).values
            assert pair.value.startswith(b'{"v":2,')
            found = values.read_partition(pair.value, 0)
            assert (found.leader, found.leader_epoch, found.broker_epoch) == (-1, epoch, 0)
            assert found.in_sync == ((1, since.revision),)
        assert image.features.levels == {"penstock.cluster": 1}
        assert not image.unpublished
        assert not (await store.read(TARGET.partition(UNPUBLISHED, 0))).values
        # Also for a topic of a version that had no such keys.
        for similar, name in (("a_b", "a.b"), ("old_one", "old_one")):
            (pair,) = (await store.read(TARGET.name(similar))).values
            assert pair.value == values.write_name(name)

    run(tmp_path, body)


def test_states_in_the_directory(tmp_path: Path) -> None:
    async def body(directory: Directory, store: MemoryMetadataStore) -> None:
        await directory.import_(store)
        # A change in the cluster is carried back.
        changed = state(11, leader=-1, broker_epoch=0, isr_epochs=(0,), is_recovering=True)
        await store.transact((), (Put(TARGET.partition(DOTTED, 0), changed),))
        await directory.export(store)
        image = await directory.image()
        (found,) = image.topics["a.b"].partitions
        assert (found.leader, found.leader_epoch, found.isr) == (1, 11, (1,))
        assert not found.is_recovering
        assert not image.nodes

    run(tmp_path, body)


def test_check_changes_nothing(tmp_path: Path) -> None:
    async def body(directory: Directory, store: MemoryMetadataStore) -> None:
        names = directory.names()
        report = await directory.import_(store, only_checks=True)
        assert report.counts["topics"] == 3
        assert directory.names() == names
        assert not (await store.read_prefix("/")).values
        await directory.import_(store)
        names, before = directory.names(), await store.read_prefix("/")
        assert (await directory.export(store, only_checks=True)).counts == report.counts
        assert not (await directory.import_(store, only_checks=True)).counts
        assert directory.names() == names
        assert await store.read_prefix("/") == before

    run(tmp_path, body)


def test_the_directory_says_where_its_metadata_is(tmp_path: Path) -> None:
    async def body(directory: Directory, store: MemoryMetadataStore) -> None:
        disk = DiskFileSystem()
        with pytest.raises(ConfigError, match="ran alone") as error:
            check_joining(disk, directory.path, METADATA_FILE)
        assert "penstock cluster import" in error.value.hint
        await directory.import_(store)
        with pytest.raises(ConfigError, match="metadata is in etcd") as error:
            check_alone(disk, directory.path)
        assert f"penstock cluster export --data-dir {directory.path}" in error.value.hint
        check_joining(disk, directory.path, METADATA_FILE)
        await directory.export(store)
        check_alone(disk, directory.path)

    run(tmp_path, body)


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.ANSWER_LOST, Fault.LATE])
@pytest.mark.parametrize("at", range(8))
def test_lost_answers_of_the_store(tmp_path: Path, fault: Fault, at: int) -> None:
    async def body(directory: Directory, store: MemoryMetadataStore) -> None:
        before = without_revisions(await directory.image())
        store.faults.extend([Fault.NONE] * at + [fault])
        await directory.import_(store)
        store.faults.clear()
        # A write that comes late changes nothing more.
        await store.transact((), ())
        image = await loaded(store, TARGET)
        assert without_revisions(image) == before
        since = image.nodes[1].revision
        assert {one.isr_epochs for one in image.topics["orders"].partitions} == {(since,)}
        store.faults.extend([Fault.NONE] * (at % 2) + [fault])
        await directory.export(store)
        store.faults.clear()
        await store.transact((), ())
        assert without_revisions(await directory.image()) == before
        assert not (await store.read_prefix("/")).values

    run(tmp_path, body)


def test_a_warning_about_replicas_that_are_missing(tmp_path: Path) -> None:
    async def body(directory: Directory, store: MemoryMetadataStore) -> None:
        report = await directory.import_(store, only_checks=True)
        (warning,) = report.warnings
        assert "above 1 for a.b:" in warning

    run(
        tmp_path,
        body,
        {KEYS.topic_settings("a.b"): values.write_settings({"min.insync.replicas": "2"})},
    )


# --- Refusals ---


def refused(
    tmp_path: Path,
    text: str,
    change: Body,
    more: dict[str, bytes] | None = None,
    *,
    is_export: bool = False,
) -> None:
    async def body(directory: Directory, store: MemoryMetadataStore) -> None:
        if is_export:
            await directory.import_(store)
        await change(directory, store)
        names, before = directory.names(), (await store.read_prefix("/")).values
        work = directory.export if is_export else directory.import_
        for only_checks in (True, False):
            with pytest.raises(PenstockError, match=text):
                await work(store, only_checks=only_checks)
        assert directory.names() == names
        assert (await store.read_prefix("/")).values == before
        # The lock is free again.
        lock_directory(DiskFileSystem(), directory.path).release()

    run(tmp_path, body, more)


async def nothing(_directory: Directory, _store: MemoryMetadataStore) -> None:
    return


def test_an_unclean_stop_is_refused(tmp_path: Path) -> None:
    async def change(directory: Directory, _store: MemoryMetadataStore) -> None:
        directory.remove(CLEAN_FILE)

    refused(tmp_path, "was not clean", change)


def test_a_directory_that_no_broker_used_is_refused(tmp_path: Path) -> None:
    async def change(directory: Directory, _store: MemoryMetadataStore) -> None:
        directory.write("meta.properties", b"version=1\ncluster.id=x\n")

    refused(tmp_path, r"lacks directory.id, node.id", change)


def test_a_directory_without_metadata_is_refused(tmp_path: Path) -> None:
    async def change(directory: Directory, _store: MemoryMetadataStore) -> None:
        directory.remove(METADATA_FILE)

    refused(tmp_path, "has no metadata", change)


def test_a_worker_of_a_supervisor_is_refused(tmp_path: Path) -> None:
    async def change(directory: Directory, _store: MemoryMetadataStore) -> None:
        text = directory.text("meta.properties") + "metadata.store=supervisor\n"
        directory.write("meta.properties", text.encode())

    refused(tmp_path, "in another place", change)


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    async def body(directory: Directory, store: MemoryMetadataStore) -> None:
        # As a broker locks it.
        held = DiskFileSystem().lock(f"{directory.path}/.lock")
        for work in (directory.import_, directory.export):
            with pytest.raises(TransferRefusedError, match="a running broker uses"):
                await work(store)
        held.release()
        with pytest.raises(TransferRefusedError, match="there is no data directory"):
            await Directory(tmp_path / "none").import_(store)

    run(tmp_path, body)


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({KEYS.root + "shares/a": b"{}"}, "of a kind that this version of Penstock does not know"),
        ({"/elsewhere": b"{}"}, "belongs to no cluster"),
        ({KEYS.topic("orders"): b'{"v":9}'}, "newer Penstock"),
        ({KEYS.declaration("orders"): b'{"v":9}'}, "newer Penstock"),
        ({KEYS.features(): b'{"v":1,"levels":{"penstock.cluster":9}}'}, "at level 9"),
        ({KEYS.cluster_id(): values.write_cluster_id("other")}, "copied together"),
        ({KEYS.partition(DOTTED, 0): state(replicas=(1, 2))}, "partitions of other brokers: a.b-0"),
    ],
)
def test_metadata_that_cannot_be_carried_is_refused(
    tmp_path: Path, more: dict[str, bytes], text: str
) -> None:
    refused(tmp_path, text, nothing, more)


def test_a_first_start_that_did_not_finish_is_refused(tmp_path: Path) -> None:
    async def change(directory: Directory, _store: MemoryMetadataStore) -> None:
        await directory.delete(KEYS.adopted())

    refused(tmp_path, "first start .* did not finish", change)


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        (TARGET.cluster_id(), values.write_cluster_id("other"), "the cluster other below"),
        (f"{ROOT}something", b"x", "has 1 keys below"),
        (
            TARGET.transfer(),
            b'{"v":1,"to":"cluster","broker":5,"directory_id":"d","cluster_id":"c","nonce":""}',
            "metadata of broker 5 is being imported",
        ),
        (TARGET.transfer(), b'{"v":9}', "newer Penstock"),
        (TARGET.transfer(), b"{}", "damaged"),
    ],
)
def test_a_place_that_is_not_empty_is_refused(
    tmp_path: Path, key: str, value: bytes, text: str
) -> None:
    async def change(_directory: Directory, store: MemoryMetadataStore) -> None:
        await store.transact((), (Put(key, value),))

    refused(tmp_path, text, change)


FOREIGN = b'{"v":1,"to":"%s","broker":5,"directory_id":"d","cluster_id":"c","nonce":""}'


@pytest.mark.parametrize("to", [b"cluster", b"directory"])
def test_the_transfer_of_another_broker_is_not_settled(tmp_path: Path, to: bytes) -> None:
    """The directory is in a cluster: its broker may settle its own transfer only."""

    async def body(directory: Directory, store: MemoryMetadataStore) -> None:
        await directory.import_(store)
        await store.transact((), (Put(TARGET.transfer(), FOREIGN % to),))
        for work in (
            directory.import_(store),
            directory.export(store),
            settle_at_start(DiskFileSystem(), directory.path, store, ROOT),
        ):
            with pytest.raises(TransferRefusedError, match="broker 5"):
                await work
        (pair,) = (await store.read(TARGET.transfer())).values
        assert pair.value == FOREIGN % to

    run(tmp_path, body)


class LateStore(MemoryMetadataStore):
    """The first write of the broker's disk lands two transactions after its second one."""

    late: "tuple[Sequence[Compare], Sequence[Operation]] | None" = None
    left = 3

    async def transact(
        self,
        compares: Sequence[Compare],
        operations: Sequence[Operation],
        *,
        read_on_failure: Sequence[str] = (),
    ) -> TransactionResult:
        writes_disk = any(isinstance(one, Put) and one.key == TARGET.node(1) for one in operations)
        if self.late is None and writes_disk:
            self.late = (compares, operations)
            raise AmbiguousStoreError("the answer does not come")
        self.left -= self.late is not None
        if self.late is not None and self.left == 0:
            await super().transact(*self.late)
        return await super().transact(compares, operations, read_on_failure=read_on_failure)


def test_a_late_write_of_the_disk_does_not_outdate_the_replicas(tmp_path: Path) -> None:
    """An entry is valid only if it is not older than the key of the disk."""

    async def main() -> None:
        directory, store = await Directory(tmp_path / "d").fill(), LateStore()
        await directory.import_(store)
        assert store.left < 0
        image = await loaded(store, TARGET)
        epochs = {one.isr_epochs for one in image.topics["orders"].partitions}
        assert epochs == {(image.nodes[1].revision,)}

    asyncio.run(main())


def test_other_clusters_of_the_store_are_left_alone(tmp_path: Path) -> None:
    async def body(directory: Directory, store: MemoryMetadataStore) -> None:
        others = ("/penstock/productionx/topics/t", "/penstock/other/meta/cluster_id")
        await store.transact((), [Put(key, b"x") for key in others])
        await directory.import_(store)
        await directory.export(store)
        assert sorted(pair.key for pair in (await store.read_prefix("/")).values) == sorted(others)

    run(tmp_path, body)


def member(store: MemoryMetadataStore, broker_id: int, directory: str) -> Membership:
    endpoint = Endpoint(PLAINTEXT, "localhost", 9092)
    return Membership(store, TARGET, BrokerImage(broker_id, (endpoint,), None, directory, 0))


def test_an_export_with_a_running_broker_is_refused(tmp_path: Path) -> None:
    async def change(_directory: Directory, store: MemoryMetadataStore) -> None:
        await member(store, 2, "other").join()

    refused(tmp_path, "brokers of the cluster run: 2", change, is_export=True)


@pytest.mark.parametrize("is_killed", [True, False])
def test_the_session_of_the_broker_itself_must_end(tmp_path: Path, is_killed: bool) -> None:
    """It was killed a moment ago, or it runs elsewhere and this directory is a copy."""

    async def body(directory: Directory, store: MemoryMetadataStore) -> None:
        await directory.import_(store)
        running = member(store, 1, "directory")
        await running.join()
        looks = 0

        async def sleep(_seconds: float) -> None:
            nonlocal looks
            looks += 1
            if is_killed and looks == 9:
                await store.end_session(running.session)

        disk = DiskFileSystem()
        work = export_cluster(disk, directory.path, store, ROOT, only_checks=False, sleep=sleep)
        if is_killed:
            await work
        else:
            with pytest.raises(TransferRefusedError, match="is a copy of its data directory"):
                await work
            assert (await store.read(TARGET.broker(1))).values
            assert not (await store.read(TARGET.transfer())).values
        assert looks == (9 if is_killed else 62)
        assert await directory.starts_alone() is is_killed

    run(tmp_path, body)


@pytest.mark.parametrize("change", [{"replicas": (1, 2)}, {"replicas": (2,), "isr": (2,)}])
def test_replicas_of_other_brokers_are_not_lost(
    tmp_path: Path, change: dict[str, tuple[int, ...]]
) -> None:
    async def write(_directory: Directory, store: MemoryMetadataStore) -> None:
        moved = state(0, **change, isr_epochs=(0,))
        await store.transact((), (Put(TARGET.partition(ORDERS, 3), moved),))

    refused(tmp_path, "other brokers have replicas of orders-3", write, is_export=True)


def test_a_broker_that_registers_during_an_export_is_noticed(tmp_path: Path) -> None:
    """It comes after the first look and before the key `transfer`: the second look sees it."""

    async def body(directory: Directory, store: MemoryMetadataStore) -> None:
        await directory.import_(store)
        joined: list[Membership] = []
        transact = store.transact

        async def late(*given: object, **more: object) -> object:
            if not joined:
                joined.append(member(store, 5, "other"))
                await joined[0].join()
            return await transact(*given, **more)  # type: ignore[arg-type]

        store.transact = late  # type: ignore[assignment,method-assign]
        with pytest.raises(TransferRefusedError, match="brokers of the cluster run: 5"):
            await directory.export(store)
        assert not (await store.read(TARGET.transfer())).values
        assert not await directory.starts_alone()

    run(tmp_path, body)


def test_an_export_of_another_cluster_is_refused(tmp_path: Path) -> None:
    async def change(_directory: Directory, store: MemoryMetadataStore) -> None:
        await store.transact((), (Put(TARGET.cluster_id(), values.write_cluster_id("other")),))

    refused(tmp_path, "etcd has the cluster other", change, is_export=True)


def test_an_export_of_a_broker_alone_ends_at_once(tmp_path: Path) -> None:
    async def body(directory: Directory, store: MemoryMetadataStore) -> None:
        assert not (await directory.export(store)).counts
        await store.transact((), (Put(TARGET.cluster_id(), values.write_cluster_id("other")),))
        with pytest.raises(TransferRefusedError, match="etcd has another cluster"):
            await directory.export(store)

    run(tmp_path, body)


def test_a_lost_etcd_is_not_taken_for_an_import(tmp_path: Path) -> None:
    async def body(directory: Directory, store: MemoryMetadataStore) -> None:
        await directory.import_(store)
        for work in (directory.import_, directory.export):
            with pytest.raises(TransferRefusedError, match="etcd has no cluster below"):
                await work(MemoryMetadataStore())

    run(tmp_path, body)


def test_a_draft_of_an_earlier_export_is_removed(tmp_path: Path) -> None:
    async def body(directory: Directory, store: MemoryMetadataStore) -> None:
        await directory.import_(store)
        for suffix in ("", "-wal"):
            directory.write(f"{DRAFT_FILE}{suffix}", b"half of a file")
        await directory.export(store)
        assert (await directory.image()).cluster_id == CLUSTER_ID

    run(tmp_path, body)


def test_two_imports_exclude_each_other(tmp_path: Path) -> None:
    """The second takes over, and the first writes nothing more."""

    async def body(directory: Directory, store: MemoryMetadataStore) -> None:
        other = directory.copied(tmp_path / "copy")
        transact, calls = store.transact, 0

        async def interrupted(*given: object, **more: object) -> object:
            nonlocal calls
            calls += 1
            if calls == 4:
                store.transact = transact  # type: ignore[method-assign]
                await other.import_(store)
            return await transact(*given, **more)  # type: ignore[arg-type]

        store.transact = interrupted  # type: ignore[assignment,method-assign]
        with pytest.raises(StoreError, match="another process changes the metadata"):
            await directory.import_(store)
        assert await directory.starts_alone()
        assert len((await loaded(store, TARGET)).topics) == 3

    run(tmp_path, body)


def test_settings_of_all_brokers_count_for_the_warning(tmp_path: Path) -> None:
    async def body(directory: Directory, store: MemoryMetadataStore) -> None:
        report = await directory.import_(store, only_checks=True)
        assert "a.b, old_one, orders" in report.warnings[0]

    key = KEYS.broker_settings(ALL_BROKERS)
    run(tmp_path, body, {key: values.write_settings({"min.insync.replicas": "2"})})


def test_ids_are_kept(tmp_path: Path) -> None:
    async def body(directory: Directory, store: MemoryMetadataStore) -> None:
        await directory.import_(store)
        image = await loaded(store, TARGET)
        assert {topic.id for topic in image.topics.values()} == {ORDERS, DOTTED, OLD}
        assert set(image.acls) == {UUID(int=9)}

    run(tmp_path, body)


def test_no_cluster_is_founded_during_an_import() -> None:
    """Also not by a broker that looked before the import began."""

    async def main() -> None:
        store = MemoryMetadataStore()
        target = TransferStore(store, TARGET)
        await target.find()
        await target.begin(Transfer(Direction.INTO_CLUSTER, 5, "d", CLUSTER_ID, "n"))
        followed = FollowedImage(store, TARGET)
        with pytest.raises(StoreError, match="metadata of broker 5 is being imported"):
            await found_cluster(store, TARGET, followed, "other")
        assert await target.cluster_id() is None
        await target.publish(CLUSTER_ID)
        await found_cluster(store, TARGET, followed, "other")
        assert followed.newest.cluster_id == CLUSTER_ID

    asyncio.run(main())


def test_an_import_never_replaces_a_cluster() -> None:
    async def main() -> None:
        store = MemoryMetadataStore()
        target = TransferStore(store, TARGET)
        await target.find()
        await target.begin(Transfer(Direction.INTO_CLUSTER, 5, "d", CLUSTER_ID, "n"))
        await store.transact((), (Put(TARGET.cluster_id(), values.write_cluster_id("other")),))
        with pytest.raises(StoreError, match="could not be published"):
            await target.publish(CLUSTER_ID)
        assert await target.cluster_id() == "other"

    asyncio.run(main())
