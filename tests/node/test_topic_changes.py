"""Topics change while they are served: logs follow at once, and a restart finds the change."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import pytest

from penstock.cluster.configs.setting_changes import EditKind, SettingEdit, SettingsChange
from penstock.cluster.controller import NewTopic
from penstock.cluster.image import BrokerImage, Endpoint
from penstock.cluster.service import MetadataService
from penstock.cluster.topic_changes import MorePartitions
from penstock.core.errors import DiskFullError, InvalidTopicConfigError
from penstock.core.types import PLAINTEXT, TopicPartition
from penstock.node.administration.topic_administration import Topics
from penstock.protocol.error_codes import ErrorCode
from penstock.replication.hosted_partition import HostedPartition
from penstock.replication.hosting import Hosting
from penstock.replication.manager import ReplicaManager
from penstock.storage.disk.memory_disk import MemoryDisk
from penstock.storage.log_manager import LogManager
from penstock.storage.service import StorageService
from penstock.testing.memory_store import MemoryMetadataStore
from tests.broker.handlers.asker import Asker, batch_of
from tests.broker.handlers.configs import SET, TOPIC, increment, overrides
from tests.broker.handlers.test_create_partitions import add, count_of, wanted
from tests.node.data import broker_on, crash
from tests.replication.replicas import ManualTimer
from tests.storage.logs import Clock

Body = Callable[[Topics, ReplicaManager], Awaitable[None]]


def run(body: Body, defaults: Mapping[str, str] = {"retention.ms": "77"}) -> None:
    """Run `body` with the topics of a node whose disk is memory."""

    async def main() -> None:
        clock = Clock()
        logs = LogManager(MemoryDisk(), ["/data"], clock)
        logs.start()
        storage = StorageService(logs, clock, on_durable=lambda _: None, on_failure=lambda *_: None)
        replicas = ReplicaManager(ManualTimer(), storage.schedule_flush)
        storage.start(asyncio.get_running_loop())
        async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
            store = MemoryMetadataStore()
            metadata = MetadataService(store, defaults=lambda _: dict(defaults))
            await metadata.start(tasks)
            await metadata.register_broker(
                BrokerImage(1, (Endpoint(PLAINTEXT, "h", 1),), None, "d", 0), tasks
            )
            topics = Topics(metadata, Hosting(1, metadata, storage, replicas))
            await topics.create([NewTopic(name="t", partition_count=2)], validate_only=False)
            await body(topics, replicas)
            await metadata.stop()
            await store.close()
        await storage.stop()

    asyncio.run(main())


def setting(name: str, value: str | None) -> SettingsChange:
    kind = EditKind.DELETE if value is None else EditKind.SET
    return SettingsChange("t", (SettingEdit(name, kind, value or ""),))


def partition(replicas: ReplicaManager, index: int = 0) -> HostedPartition:
    return replicas.partition(TopicPartition("t", index))


def test_running_logs_follow_the_settings_of_their_topic() -> None:
    async def body(topics: Topics, replicas: ReplicaManager) -> None:
        assert partition(replicas).log.settings.retention_ms == 77
        for name, value in (
            ("retention.ms", "5000"),
            ("segment.bytes", "1048576"),
            ("segment.ms", "9000"),
            ("max.message.bytes", "2000"),
            ("min.cleanable.dirty.ratio", "0.1"),
        ):
            assert await topics.change_settings([setting(name, value)], validate_only=False) == [
                None
            ]
        for index in range(2):
            settings = partition(replicas, index).log.settings
            assert settings.retention_ms == 5000
            assert settings.segment_bytes == 1_048_576
            assert settings.segment_ms == 9000
            assert settings.dirty_ratio_min == 0.1
            assert partition(replicas, index).rules.batch_bytes_max == 2000
        await topics.change_settings([setting("retention.ms", None)], validate_only=False)
        assert partition(replicas).log.settings.retention_ms == 77

    run(body)


def test_a_log_that_was_compacted_may_have_gaps_for_ever() -> None:
    async def body(topics: Topics, replicas: ReplicaManager) -> None:
        for policy, compacts, may_have_gaps in (
            ("delete", False, False),
            ("compact", True, True),
            ("delete", False, True),
        ):
            await topics.change_settings([setting("cleanup.policy", policy)], validate_only=False)
            settings = partition(replicas).log.settings
            assert (settings.compacts, settings.is_compacted) == (compacts, may_have_gaps)

    run(body)


def test_what_is_refused_or_only_validated_leaves_the_logs_alone() -> None:
    async def body(topics: Topics, replicas: ReplicaManager) -> None:
        before = partition(replicas).log.settings
        wrong = setting("retention.ms", "soon")
        (refused,) = await topics.change_settings([wrong], validate_only=False)
        assert isinstance(refused, InvalidTopicConfigError)
        right = setting("retention.ms", "5")
        assert await topics.change_settings([right], validate_only=True) == [None]
        assert await topics.add_partitions([MorePartitions("t", 3)], validate_only=True) == [None]
        assert partition(replicas).log.settings is before
        assert len(replicas) == 2

    run(body)


def test_a_new_partition_that_found_no_room_exists_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise DiskFullError("no room")

    async def body(topics: Topics, replicas: ReplicaManager) -> None:
        monkeypatch.setattr(LogManager, "create_log", full)
        assert await topics.add_partitions([MorePartitions("t", 3)], validate_only=False) == [None]
        assert "a new partition of t is not served: no room" in caplog.text
        with pytest.raises(DiskFullError):
            partition(replicas, 2)
        assert partition(replicas, 1).topic_id == partition(replicas).topic_id

    run(body)


def test_a_change_is_judged_by_the_defaults_of_now() -> None:
    defaults: dict[str, str] = {}

    async def body(topics: Topics, _replicas: ReplicaManager) -> None:
        # Decided and stored, and the topics have not followed yet.
        defaults["min.compaction.lag.ms"] = "1000"
        shorter = setting("max.compaction.lag.ms", "500")
        (refused,) = await topics.change_settings([shorter], validate_only=False)
        assert isinstance(refused, InvalidTopicConfigError)

    run(body, defaults)


def test_a_topic_that_contradicts_the_defaults_keeps_no_other_from_following() -> None:
    defaults: dict[str, str] = {}

    async def body(topics: Topics, replicas: ReplicaManager) -> None:
        await topics.change_settings([setting("max.compaction.lag.ms", "500")], validate_only=False)
        await topics.create([NewTopic(name="u")], validate_only=False)
        defaults.update({"min.compaction.lag.ms": "1000", "retention.ms": "5"})
        await topics.follow_defaults()
        followed = partition(replicas).log.settings
        assert (followed.retention_ms, followed.compaction_lag_ms_min) == (5, 0)
        assert followed.compaction_lag_ms_max == 500
        other = replicas.partition(TopicPartition("u", 0)).log.settings
        assert (other.retention_ms, other.compaction_lag_ms_min) == (5, 1000)

    run(body, defaults)


def test_new_partitions_have_the_settings_of_their_topic() -> None:
    async def body(topics: Topics, replicas: ReplicaManager) -> None:
        await topics.change_settings([setting("retention.ms", "5")], validate_only=False)
        assert await topics.add_partitions([MorePartitions("t", 3)], validate_only=False) == [None]
        assert partition(replicas, 2).log.settings == partition(replicas).log.settings
        assert partition(replicas, 2).topic_id == partition(replicas).topic_id

    run(body)


@pytest.mark.parametrize("is_crash", [False, True], ids=["stop", "crash"])
def test_changes_are_there_after_a_restart(tmp_path: Path, is_crash: bool) -> None:
    path = tmp_path / "data"
    with broker_on(path) as asker:
        asker.create("t")
        assert add(asker, wanted("t", 3))["t"].error_code == ErrorCode.NONE
        result = increment(asker, TOPIC, "t", ("retention.ms", SET, "123456"))
        assert result.error_code == ErrorCode.NONE
        asker.produce("t", batch_of(b"x"), partition=2)
        if is_crash:
            path = crash(path)
    with broker_on(path) as asker:
        assert count_of(asker, "t") == 3
        assert overrides(asker, "t") == {"retention.ms": "123456"}
        assert asker.list_offsets("t", {2: -1})[2].offset == 1


def test_segments_roll_at_the_new_size(tmp_path: Path) -> None:
    path = tmp_path / "data"

    def segments() -> int:
        return len(list((path / "t-0").glob("*.log")))

    def write(asker: Asker) -> None:
        for _ in range(3):
            assert asker.produce("t", batch_of(b"x" * 600_000)).error_code == ErrorCode.NONE

    with broker_on(path) as asker:
        asker.create("t")
        write(asker)
        assert segments() == 1
        increment(asker, TOPIC, "t", ("segment.bytes", SET, "1048576"))
        write(asker)
        assert segments() > 2
