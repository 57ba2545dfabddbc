"""A broker of a cluster opens its directory: identity, logs, losses; it serves no clients here."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from penstock.cluster.controller import NewTopic
from penstock.cluster.image import BrokerImage, BrokerState, Endpoint, TopicImage
from penstock.core.clock import SystemClock
from penstock.core.errors import ConfigError
from penstock.core.settings.tree import Settings, settings_of
from penstock.core.types import PLAINTEXT, TopicPartition
from penstock.node.foundation import Foundation, lay_foundation
from penstock.node.offline_metadata import with_offline_metadata
from penstock.node.security.cluster_store import etcd_options
from penstock.node.stand_ins import StandIns
from penstock.node.start_check import may_have_rules, start_problems
from penstock.storage.disk.data_directory import CLEAN_FILE
from penstock.storage.log.log_settings import LogSettings
from penstock.testing.memory_store import MemoryMetadataStore


def settings(path: Path, node_id: int = 1, **more: object) -> Settings:
    given = {key.replace("__", "."): value for key, value in more.items()}
    return settings_of(
        {"node.id": node_id, "node.data_dir": str(path), "admin.enabled": False} | given
    )


def in_cluster(
    store: MemoryMetadataStore | None,
    given: Settings,
    body: Callable[[Foundation], Awaitable[None]],
) -> None:
    """Run `body` with the foundation of a broker, on a shared store or alone."""

    async def main() -> None:
        async with asyncio.timeout(20), AsyncExitStack() as stack:
            ground = await lay_foundation(given, stack, StandIns(metadata_store=store))
            await body(ground)

    try:
        asyncio.run(main())
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None


async def register(ground: Foundation) -> BrokerImage:
    endpoint = Endpoint(PLAINTEXT, "localhost", 9092)
    node = ground.settings.node
    image = BrokerImage(node.id, (endpoint,), node.rack, ground.directory_id, 0)
    await ground.metadata.register_broker(image, ground.tasks)
    await ground.metadata.change_state(BrokerState.RUNNING)
    return ground.metadata.image.brokers[node.id]


async def nothing(_ground: Foundation) -> None:
    return


@pytest.fixture
def store() -> MemoryMetadataStore:
    return MemoryMetadataStore()


def test_a_new_directory_founds_or_joins(tmp_path: Path, store: MemoryMetadataStore) -> None:
    ids: list[str] = []

    async def body(ground: Foundation) -> None:
        assert ground.is_clustered
        ids.append(ground.metadata.image.cluster_id)
        broker = await register(ground)
        assert broker.rack == "r1"

    for node_id in (1, 2, 1):
        given = settings(tmp_path / f"d{node_id}", node_id, node__rack="r1")
        in_cluster(store, given, body)
    assert len(set(ids)) == 1


def test_a_directory_whose_cluster_is_not_there_is_refused(
    tmp_path: Path, store: MemoryMetadataStore
) -> None:
    in_cluster(store, settings(tmp_path), nothing)
    with pytest.raises(ConfigError, match="no cluster below /penstock/default/"):
        in_cluster(MemoryMetadataStore(), settings(tmp_path), nothing)
    other = MemoryMetadataStore()
    in_cluster(other, settings(tmp_path / "other"), nothing)
    with pytest.raises(ConfigError, match="etcd has the cluster"):
        in_cluster(other, settings(tmp_path), nothing)


def test_a_broker_is_alone_or_in_a_cluster(tmp_path: Path, store: MemoryMetadataStore) -> None:
    async def body(ground: Foundation) -> None:
        assert not ground.is_clustered

    in_cluster(store, settings(tmp_path / "many"), nothing)
    with pytest.raises(ConfigError, match="metadata is in etcd"):
        in_cluster(None, settings(tmp_path / "many"), nothing)
    in_cluster(None, settings(tmp_path / "one"), body)
    with pytest.raises(ConfigError, match="ran alone"):
        in_cluster(store, settings(tmp_path / "one"), nothing)


def test_metadata_of_a_cluster_is_not_changed_offline(
    tmp_path: Path, store: MemoryMetadataStore
) -> None:
    in_cluster(store, settings(tmp_path), nothing)

    async def work(_metadata: object) -> None:
        raise AssertionError("not reached")

    with pytest.raises(ConfigError, match="metadata is in etcd"):
        asyncio.run(with_offline_metadata(str(tmp_path), work))
    assert not (tmp_path / "metadata.sqlite3").exists()


def test_two_clusters_share_a_store(tmp_path: Path, store: MemoryMetadataStore) -> None:
    ids = []

    async def body(ground: Foundation) -> None:
        ids.append((ground.metadata.image.cluster_id, ground.metadata.root))

    for name in ("a", "b"):
        in_cluster(store, settings(tmp_path / name, cluster__name=name), body)
    assert len({cluster_id for cluster_id, _ in ids}) == 2
    assert [root for _, root in ids] == ["/penstock/a/", "/penstock/b/"]


def test_logs_of_other_brokers_are_set_aside(
    tmp_path: Path, store: MemoryMetadataStore, caplog: pytest.LogCaptureFixture
) -> None:
    topics: list[TopicImage] = []

    async def create(ground: Foundation) -> None:
        await register(ground)
        wanted = [NewTopic(name="mine", partition_count=1), NewTopic(name="moved")]
        for topic in await ground.metadata.create_topics(wanted):
            assert isinstance(topic, TopicImage)
            topics.append(topic)
            ground.logs.create_log(TopicPartition(topic.name, 0), topic.id, LogSettings())

    async def load(ground: Foundation) -> None:
        assert {name.topic for name in ground.logs.logs} == {"mine"}

    in_cluster(store, settings(tmp_path), create)
    move_away(store, topics[1])
    with caplog.at_level(logging.WARNING):
        in_cluster(store, settings(tmp_path), load)
    assert "moved-0 belongs to no topic of this broker" in caplog.text
    assert any(one.name.endswith("-stray") for one in tmp_path.iterdir())


def move_away(store: MemoryMetadataStore, topic: TopicImage) -> None:
    """Let another broker have the only replica."""
    from penstock.cluster.keys import Keys
    from penstock.cluster.stores.port import Put
    from penstock.cluster.values import write_partition

    state = topic.partitions[0]._replace(replicas=(2,), isr=(2,), leader=2)
    put = Put(Keys().partition(topic.id, 0), write_partition(state))
    asyncio.run(store.transact((), [put]))


@pytest.mark.parametrize(
    ("mode", "is_clean", "is_kept"),
    [
        ("always", False, True),
        ("interval", True, True),
        ("interval", False, False),
        ("os", False, False),
    ],
)
def test_a_disk_that_may_have_lost_records_says_so(
    tmp_path: Path, store: MemoryMetadataStore, mode: str, is_clean: bool, is_kept: bool
) -> None:
    """Its entries among the in-sync replicas are not valid any more."""
    revisions: list[int] = []

    async def body(ground: Foundation) -> None:
        await register(ground)
        revisions.append(ground.metadata.image.nodes[1].revision)

    given = settings(tmp_path, flush__mode=mode)
    in_cluster(store, given, body)
    if is_clean:
        (tmp_path / CLEAN_FILE).write_bytes(b"{}")
    else:
        (tmp_path / CLEAN_FILE).unlink(missing_ok=True)
    in_cluster(store, given, body)
    assert (revisions[0] == revisions[1]) is is_kept


def etcd(**more: object) -> Settings:
    return settings_of({"cluster.etcd": ("http://a:1", "http://b:2"), "node.id": 5} | more)


def test_the_options_of_etcd_are_those_of_the_settings(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("s3cret\n")
    options = etcd_options(
        etcd(**{"cluster.etcd_user": "u", "cluster.etcd_password_file": str(secret)})
    )
    assert [one.target for one in options.endpoints] == ["a:1", "b:2"]
    assert options.first_member == 1
    assert options.password is not None
    assert options.password.reveal() == "s3cret"


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(ConfigError, match="grpcio") as error:
        etcd_options(etcd())
    assert error.value.hint == "pip install 'penstock[cluster]'"


def test_a_check_before_the_start_reads_the_settings_of_etcd() -> None:
    wrong = etcd(**{"cluster.etcd_user": "u", "cluster.etcd_password_file": "/nowhere"})
    (problem,) = start_problems(wrong, SystemClock())
    assert "cluster.etcd_password_file /nowhere cannot be read" in str(problem)
    assert list(start_problems(etcd(), SystemClock())) == []
    assert may_have_rules(etcd())


def test_an_etcd_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.cluster.etcd import etcd_store
    from penstock.core.errors import StoreError

    async def refuse(*_arguments: object, **_named: object) -> None:
        raise StoreError("no member answered")

    monkeypatch.setattr(etcd_store.EtcdMetadataStore, "open", refuse)
    given = settings(tmp_path, cluster__etcd=("http://127.0.0.1:1",), cluster__listen_port=0)
    with pytest.raises(ConfigError, match=r"etcd at http://127\.0\.0\.1:1 does not answer"):
        in_cluster(None, given, nothing)
