"""Settings of a running broker: each that is live is followed, and a file is taken whole or not."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.broker.connections.server import Listener
from penstock.cluster.configs.group_configs import (
    SHARE_ASSIGNMENT_INTERVAL,
    SHARE_DELIVERY_LIMIT,
    SHARE_HEARTBEAT_INTERVAL,
    SHARE_LOCK_DURATION,
    SHARE_LOCKS_MAX,
    SHARE_SESSION_TIMEOUT,
)
from penstock.core.errors import ConfigError
from penstock.core.file_watch import Look
from penstock.core.settings.config import Loaded, load_settings
from penstock.core.settings.setting_names import is_live
from penstock.core.settings.tree import FIELDS
from penstock.node.administration.group_administration import Groups
from penstock.node.coordination.coordinators import NodeCoordinators
from penstock.node.duties import StorageDuties
from penstock.node.pipes.pipe_source import NodePipeSource
from penstock.node.producer_expiration import ProducerExpiration
from penstock.node.server import BrokerServer
from penstock.node.settings.settings_reload import SettingsReload, SettingsSource
from penstock.node.wiring import Parts

BASE = "[listener]\nport = 0\n[node]\nstorage = 'memory'\n"
FIRST, SECOND = Look(1, 1, 1, 1, 1), Look(2, 2, 2, 2, 2)


class File:
    """A settings file that the test writes; the watch is given looks by hand."""

    def __init__(self, text: str = BASE) -> None:
        self.text = text
        self.failure: ConfigError | None = None

    def load(self) -> Loaded:
        if self.failure is not None:
            raise self.failure
        return load_settings(self.text, {}, {}, "p.toml")


class Running:
    """A broker in memory, and the parts that follow settings."""

    def __init__(self, file: File, parts: Parts, caplog: pytest.LogCaptureFixture) -> None:
        self.file, self.parts, self.log = file, parts, caplog
        assert parts.reload is not None
        self.reload: SettingsReload = parts.reload
        owners = [getattr(one, "__self__", None) for one in parts.live.followers]
        self._owners = {type(one): one for one in owners}

    def part(self, kind: type) -> object:
        return self._owners[kind]

    async def takes(self, text: str) -> None:
        self.file.text = text
        await self.reload.reload()

    @property
    def metrics(self) -> Mapping[str, float]:
        return self.parts.metrics.snapshot()


def run(
    scenario: Callable[[Running], Awaitable[None]],
    caplog: pytest.LogCaptureFixture,
    text: str = BASE,
) -> None:
    caplog.set_level(logging.INFO, "penstock")
    file = File(text)

    async def go() -> None:
        source = SettingsSource("p.toml", file.load, file.load(), FIRST)
        async with BrokerServer(source=source) as server:
            assert server._parts is not None
            await scenario(Running(file, server._parts, caplog))

    try:
        asyncio.run(go())
    finally:
        logging.getLogger("penstock").setLevel(logging.NOTSET)


# --- Each live setting ---

ANOTHER = {
    "node.log_level": "debug",
    "groups.consumer_migration_policy": "upgrade",
    "topic_defaults.auto_create": False,
    "disk.free_percent_min": 3.5,
    "shares.updates_per_snapshot": 400,
    "groups.consumer_assignment_interval_ms": 2_000,
    "groups.consumer_assignment_interval_ms_min": 1_000,
    "groups.consumer_assignment_interval_ms_max": 14_000,
    "groups.share_assignment_interval_ms": 2_000,
    "groups.share_assignment_interval_ms_min": 1_000,
    "groups.share_assignment_interval_ms_max": 14_000,
    "groups.share_delivery_count_limit": 6,
    "groups.share_delivery_count_limit_min": 3,
    "groups.share_delivery_count_limit_max": 9,
    "groups.dead_letter_topic_prefix": "dead.",
    "groups.dead_letter_auto_create": True,
}
"""Values for those that cannot be a little more than the default."""


def another(key: str) -> object:
    default = FIELDS[key].default
    if key in ANOTHER:
        return ANOTHER[key]
    if key.endswith(("members_max", "address_max", "connections_max")):
        return 5
    return default + 7 if default > 0 else 1_234_567


def readers(running: Running) -> dict[str, Callable[[], object]]:
    """Where the part that acts on a setting has its value."""
    listener = running.part(Listener)
    duties = running.part(StorageDuties)
    coordinators = running.part(NodeCoordinators)
    expiration = running.part(ProducerExpiration)
    groups = running.part(Groups)
    assert isinstance(listener, Listener)
    assert isinstance(duties, StorageDuties)
    assert isinstance(coordinators, NodeCoordinators)
    assert isinstance(expiration, ProducerExpiration)
    assert isinstance(groups, Groups)
    state = listener._state
    guard = duties._storage.disk_guard(next(iter(duties._storage.manager.flushers)).directory.path)
    shards = coordinators._kind("group").make_shard(0, 0)
    times = shards.state.times  # type: ignore[attr-defined]
    of_groups = shards.state.settings  # type: ignore[attr-defined]
    of_transactions = coordinators._kind("transaction").make_shard(0, 0)._settings  # type: ignore[attr-defined]
    of_shares = coordinators._kind("share").make_shard(0, 0)._settings  # type: ignore[attr-defined]
    topics = coordinators._topics
    current = running.parts.live.current

    def default_of(name: str) -> Callable[[], object]:
        return lambda: int(topics._defaults[name])

    def bound(name: str, place: int) -> Callable[[], object]:
        return lambda: groups._rules[name][place]

    def shared(owner: object, name: str) -> Callable[[], object]:
        return lambda: getattr(owner, name)

    listed = {
        f"listener.{name}": lambda name=name: getattr(state.settings, name)
        for name in (
            "connections_max",
            "connections_per_address_max",
            "connection_idle_seconds_max",
            "frame_completion_seconds_max",
            "slow_reader_seconds_max",
        )
    }
    session, heartbeat = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
    assignment = "consumer.assignment.interval.ms"
    return {
        **listed,
        "edge.catch_up_max": NodePipeSource(running.parts.services).catch_up_max,
        "node.log_level": lambda: logging.getLevelName(logging.getLogger("penstock").level).lower(),
        "listener.requests_in_flight_max": lambda: state.handling.requests_max,
        "listener.request_bytes_in_flight_max": lambda: state.handling.bytes_max * 2 + 1,
        "flush.interval_ms": lambda: duties._sync.interval_seconds * 1_000,
        "log.retention_check_interval_ms": lambda: duties._retention.interval_seconds * 1_000,
        "log.compaction_check_interval_ms": lambda: duties._compaction.interval_seconds * 1_000,
        "log.checkpoint_interval_ms": lambda: duties._checkpoint.interval_seconds * 1_000,
        "topic_defaults.auto_create": lambda: current.settings.topic_defaults.auto_create,
        "topic_defaults.partitions_default": lambda: (
            running.parts.metadata._rules.partition_count_default
        ),
        "topic_defaults.segment_bytes": default_of("segment.bytes"),
        "topic_defaults.retention_ms": default_of("retention.ms"),
        "topic_defaults.retention_bytes": default_of("retention.bytes"),
        "topic_defaults.message_bytes_max": default_of("max.message.bytes"),
        "disk.free_bytes_min": lambda: guard._free_bytes_min,
        "disk.free_percent_min": lambda: guard._free_share_min * 100,
        "groups.offsets_retention_minutes": lambda: of_groups.offsets_retention_ms // 60_000,
        "groups.offset_metadata_bytes_max": shared(of_groups, "offset_metadata_characters_max"),
        "groups.members_max": shared(of_groups, "classic_group_members_max"),
        "groups.consumer_members_max": shared(of_groups, "consumer_group_members_max"),
        **{
            f"groups.{name}": shared(of_groups, name)
            for name in (
                "offsets_retention_check_interval_ms",
                "initial_rebalance_delay_ms",
                "session_timeout_ms_min",
                "session_timeout_ms_max",
                "consumer_migration_policy",
                "consumer_regex_refresh_interval_ms",
            )
        },
        "groups.consumer_session_timeout_ms": lambda: times.of("g").session_timeout_ms,
        "groups.consumer_heartbeat_interval_ms": lambda: times.of("g").heartbeat_interval_ms,
        "groups.consumer_assignment_interval_ms": lambda: times.of("g").assignment_interval_ms,
        "groups.share_members_max": shared(of_groups, "share_group_members_max"),
        "groups.share_session_timeout_ms": lambda: times.of_share("g").session_timeout_ms,
        "groups.share_heartbeat_interval_ms": lambda: times.of_share("g").heartbeat_interval_ms,
        "groups.share_assignment_interval_ms": lambda: times.of_share("g").assignment_interval_ms,
        "groups.dead_letter_topic_prefix": shared(groups, "_letter_prefix"),
        "groups.dead_letter_auto_create": lambda: current.settings.groups.dead_letter_auto_create,
        "groups.share_record_lock_duration_ms": bound(SHARE_LOCK_DURATION, 0),
        "groups.share_delivery_count_limit": bound(SHARE_DELIVERY_LIMIT, 0),
        "groups.share_record_locks_max": bound(SHARE_LOCKS_MAX, 0),
        "groups.share_record_locks_max_lowest": bound(SHARE_LOCKS_MAX, 1),
        "groups.share_record_locks_max_highest": bound(SHARE_LOCKS_MAX, 2),
        **{
            f"groups.{name}_{end}": bound(setting, place)
            for name, setting in (
                ("share_session_timeout_ms", SHARE_SESSION_TIMEOUT),
                ("share_heartbeat_interval_ms", SHARE_HEARTBEAT_INTERVAL),
                ("share_assignment_interval_ms", SHARE_ASSIGNMENT_INTERVAL),
                ("share_record_lock_duration_ms", SHARE_LOCK_DURATION),
                ("share_delivery_count_limit", SHARE_DELIVERY_LIMIT),
            )
            for place, end in ((1, "min"), (2, "max"))
        },
        "groups.consumer_session_timeout_ms_min": bound(session, 1),
        "groups.consumer_session_timeout_ms_max": bound(session, 2),
        "groups.consumer_heartbeat_interval_ms_min": bound(heartbeat, 1),
        "groups.consumer_heartbeat_interval_ms_max": bound(heartbeat, 2),
        "groups.consumer_assignment_interval_ms_min": bound(assignment, 1),
        "groups.consumer_assignment_interval_ms_max": bound(assignment, 2),
        **{
            f"transactions.{name}": shared(of_transactions, name)
            for name in (
                "timeout_ms_max",
                "timeout_check_interval_ms",
                "id_expiration_ms",
                "expiration_check_interval_ms",
            )
        },
        **{
            f"shares.{name}": shared(of_shares, name)
            for name in ("updates_per_snapshot", "cold_snapshot_interval_ms", "prune_interval_ms")
        },
        "transactions.producer_expiration_ms": lambda: expiration._settings.producer_expiration_ms,
        "transactions.producer_expiration_check_interval_ms": lambda: (
            expiration._pace.interval_seconds * 1_000
        ),
    }


def without_noise(value: object) -> object:
    """What comes from another unit may be off in the last digits."""
    return round(value, 6) if isinstance(value, float) else value


def toml_of(values: Mapping[str, object]) -> str:
    def text(value: object) -> str:
        return str(value).lower() if isinstance(value, bool) else repr(value)

    return "".join(f"{key} = {text(value)}\n" for key, value in values.items())


def test_every_live_setting_reaches_the_part_that_acts_on_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    wanted = {key: another(key) for key in FIELDS if is_live(key)}
    del wanted["registry.poll_interval_ms"]  # needs a registry: tests/node/registry
    for name in ("sessions_max", "sessions_per_address_max", "sessions_per_principal_max"):
        del wanted[f"edge.{name}"]  # needs push: tests/node/push

    async def scenario(running: Running) -> None:
        found = readers(running)
        assert found.keys() == wanted.keys(), "a live setting that nobody is seen to follow"
        same = {"listener.port": 0, "node.storage": "memory"}
        await running.takes(toml_of({**same, **wanted}))
        assert running.reload.refusal is None
        assert {key: without_noise(read()) for key, read in found.items()} == wanted

    run(scenario, caplog)


# --- Whole or not at all ---


def test_a_setting_that_needs_a_restart_refuses_the_whole_file(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(running: Running) -> None:
        before = running.parts.live.current.settings
        await running.takes(f"{BASE}id = 7\n[topic_defaults]\nretention_ms = 5\n")
        assert running.parts.live.current.settings is before
        assert "node.id = 7 (p.toml line 5) needs a restart" in caplog.text
        assert "this broker runs with 1" in caplog.text
        assert running.metrics["config_reloads_refused_total"] == 1
        assert running.metrics["config_last_reload_successful"] == 0

    run(scenario, caplog)


def test_a_wrong_file_changes_nothing_and_a_right_one_afterwards_does(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(running: Running) -> None:
        started_at = running.metrics["config_last_reload_success_timestamp_seconds"]
        assert running.metrics["config_last_reload_successful"] == 1
        await running.takes(f"{BASE}[topic_defaults]\nretention_ms = 5\nretention_bytes = 'x'\n")
        settings = running.parts.live.current.settings
        assert settings.topic_defaults.retention_ms == 604_800_000
        assert "topic_defaults.retention_bytes = 'x' (p.toml line 7)" in caplog.text
        assert running.metrics["config_last_reload_successful"] == 0
        await running.takes(f"{BASE}[topic_defaults]\nretention_ms = 5\n")
        assert running.parts.live.current.settings.topic_defaults.retention_ms == 5
        assert "settings: topic_defaults.retention_ms: 604800000 -> 5" in caplog.text
        metrics = running.metrics
        assert metrics["config_reloads_applied_total"] == 1
        assert metrics["config_reloads_refused_total"] == 1
        assert metrics["config_last_reload_successful"] == 1
        assert metrics["config_last_reload_success_timestamp_seconds"] >= started_at

    run(scenario, caplog)


def test_settings_that_topics_cannot_follow_are_refused(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load() -> Loaded:
        loaded = load_settings(BASE, {}, {}, "p.toml")
        # As if a bound of the setting were wider than that of the topics' own.
        defaults = loaded.settings.topic_defaults.model_copy(update={"retention_ms": 10**20})
        settings = loaded.settings.model_copy(update={"topic_defaults": defaults})
        return replace(loaded, settings=settings)

    async def scenario(running: Running) -> None:
        monkeypatch.setattr(running.reload, "_source", SettingsSource("p.toml", load, load(), None))
        before = running.parts.live.given
        await running.reload.reload()
        assert running.reload.refusal is not None
        assert "retention.ms" in running.reload.refusal
        assert running.parts.live.given is before

    run(scenario, caplog)


def test_a_file_that_cannot_be_read_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(running: Running) -> None:
        running.file.failure = ConfigError("the settings file p.toml cannot be read: gone")
        await running.reload.reload()
        assert running.reload.refusal is not None
        assert "cannot be read" in caplog.text

    run(scenario, caplog)


# --- The watch ---


def test_a_change_is_read_when_it_rests_and_a_question_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(running: Running) -> None:
        running.file.text = f"{BASE}[topic_defaults]\nretention_ms = 5\n"
        applied = running.reload.outcomes.applied
        await running.reload.look(FIRST)
        await running.reload.look(SECOND)
        assert applied.value == 0
        await running.reload.look(SECOND)
        assert applied.value == 1
        await running.reload.look(SECOND)
        assert applied.value == 1
        running.reload.ask()
        await running.reload.look(SECOND)
        assert applied.value == 2

    run(scenario, caplog)


# --- Related changes ---


def test_more_connections_than_there_are_descriptors_for_are_told(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(running: Running) -> None:
        monkeypatch.setattr("penstock.node.foundation.connections_within", lambda *_: 77)
        await running.takes(BASE.replace("port = 0", "port = 0\nconnections_max = 500_000"))
        assert running.parts.live.current.settings.listener.connections_max == 77
        assert "listener.connections_max = 500000 is given and 77 is in force" in caplog.text

    run(scenario, caplog)


def test_declared_topics_follow_the_file(caplog: pytest.LogCaptureFixture) -> None:
    def topics(partitions: int, settings: str) -> str:
        return f"{BASE}[[topics]]\nname = 'a'\npartitions = {partitions}\nsettings = {settings}\n"

    async def scenario(running: Running) -> None:
        image = running.parts.metadata.image
        assert len(image.topics["a"].partitions) == 2
        assert image.topics["a"].settings == {"retention.ms": "5"}
        await running.takes(topics(4, "{ 'segment.ms' = 9000 }"))
        topic = running.parts.metadata.image.topics["a"]
        assert len(topic.partitions) == 4
        assert topic.settings == {"segment.ms": "9000"}, "what the file set before is taken back"
        assert not running.parts.declared.problems
        await running.takes(topics(3, "{ 'segment.ms' = 9000 }"))
        problem = "\n".join(running.parts.declared.problems)
        assert "partitions cannot be taken away" in problem
        assert problem in caplog.text
        assert running.metrics["declared_topic_problems"] == 1
        await running.takes(BASE)
        assert running.parts.metadata.image.topics["a"].settings == {"segment.ms": "9000"}
        assert running.metrics["declared_topic_problems"] == 0

    run(scenario, caplog, topics(2, "{ 'retention.ms' = 5 }"))


def test_what_the_file_set_is_remembered_over_a_restart(tmp_path: Path) -> None:
    def text(settings: str) -> str:
        declared = f"[[topics]]\nname = 'a'\nsettings = {settings}\n"
        return f"[listener]\nport = 0\n[node]\ndata_dir = '{tmp_path / 'data'}'\n{declared}"

    async def settings_after(file: File) -> Mapping[str, str]:
        source = SettingsSource("p.toml", file.load, file.load(), FIRST)
        async with BrokerServer(source=source) as server:
            assert server._parts is not None
            return server._parts.metadata.image.topics["a"].settings

    async def go() -> None:
        assert await settings_after(File(text("{ 'retention.ms' = 5 }"))) == {"retention.ms": "5"}
        assert await settings_after(File(text("{}"))) == {}

    asyncio.run(go())


def test_a_setting_of_a_running_log_follows_new_defaults(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(running: Running) -> None:
        coordinators = running.part(NodeCoordinators)
        assert isinstance(coordinators, NodeCoordinators)
        partition = coordinators._replicas.find("a", 0)
        assert partition is not None
        assert partition.log.settings.retention_ms == 604_800_000
        declared = "[[topics]]\nname = 'a'\n"
        await running.takes(f"{BASE}{declared}[topic_defaults]\nretention_ms = 5\n")
        assert partition.log.settings.retention_ms == 5
        await running.takes(BASE + declared)
        assert partition.log.settings.retention_ms == 604_800_000

    run(scenario, caplog, f"{BASE}[[topics]]\nname = 'a'\n")
