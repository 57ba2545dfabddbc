"""Settings of single groups on a node: kept over a restart, in force at once, within bounds."""

import logging
import time
from pathlib import Path

import pytest

from penstock.cluster.configs.group_configs import (
    ASSIGNMENT_INTERVAL,
    HEARTBEAT_INTERVAL,
    SESSION_TIMEOUT,
)
from penstock.cluster.image import GroupImage, MetadataImage
from penstock.cluster.persistent_map import PersistentMap
from penstock.coordinator.ports import ConsumerTimes
from penstock.core.settings.coordinator_settings import GroupsSettings
from penstock.core.settings.tree import Settings, settings_of
from penstock.node.coordination.coordinator_kinds import ImageGroupTimes
from penstock.protocol.error_codes import ErrorCode
from penstock.testing import Broker
from tests.broker.handlers.asker import SECONDS_MAX, Asker
from tests.broker.handlers.configs import DELETE, GROUP, SET, increment, overrides
from tests.broker.handlers.groups import fetch_offsets, ready
from tests.broker.handlers.test_group_configs import heartbeat_interval_ms
from tests.node.data import broker_on, crash


def wait_until_loaded(asker: Asker, group: str) -> None:
    """After a start, coordinators read their logs in the background."""
    deadline = time.monotonic() + SECONDS_MAX
    while fetch_offsets(asker, group, {}).error_code != ErrorCode.NONE:
        assert time.monotonic() < deadline


@pytest.mark.parametrize("is_crash", [False, True], ids=["stop", "crash"])
def test_settings_are_there_after_a_restart(tmp_path: Path, is_crash: bool) -> None:
    path = tmp_path / "data"
    name = "a/b é"
    with broker_on(path) as asker:
        asker.create("t")
        ready(asker, name)
        for group in (name, "gone"):
            result = increment(asker, GROUP, group, (HEARTBEAT_INTERVAL, SET, "7000"))
            assert result.error_code == ErrorCode.NONE
        increment(asker, GROUP, "gone", (HEARTBEAT_INTERVAL, DELETE, None))
        assert heartbeat_interval_ms(asker, name, "t") == 7_000
        if is_crash:
            path = crash(path)
    with broker_on(path) as asker:
        assert overrides(asker, name, GROUP) == {HEARTBEAT_INTERVAL: "7000"}
        assert overrides(asker, "gone", GROUP) == {}
        wait_until_loaded(asker, name)
        assert heartbeat_interval_ms(asker, name, "t") == 7_000


def quick_settings(path: Path) -> Settings:
    """A broker on `path` that lets groups have shorter times than usual."""
    return settings_of(
        {
            "listener.port": 0,
            "node.data_dir": str(path),
            "groups.consumer_heartbeat_interval_ms_min": 100,
        }
    )


def test_bounds_that_changed_since_are_kept_and_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "data"
    with Broker(quick_settings(path)) as broker, Asker(broker.port) as asker:
        asker.create("t")
        ready(asker, "g")
        result = increment(asker, GROUP, "g", (HEARTBEAT_INTERVAL, SET, "200"))
        assert result.error_code == ErrorCode.NONE
        assert heartbeat_interval_ms(asker, "g", "t") == 200
    with caplog.at_level(logging.WARNING), broker_on(path) as asker:
        wait_until_loaded(asker, "g")
        assert overrides(asker, "g", GROUP) == {HEARTBEAT_INTERVAL: "200"}
        assert heartbeat_interval_ms(asker, "g", "t") == 5_000
    told = [record.message for record in caplog.records if HEARTBEAT_INTERVAL in record.message]
    assert len(told) == 1
    assert "is 200, outside of the bounds of this broker: 5000 is used" in told[0]


def test_what_is_within_the_bounds_is_not_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "data"
    with broker_on(path) as asker:
        increment(asker, GROUP, "g", (SESSION_TIMEOUT, SET, "50000"))
    with caplog.at_level(logging.WARNING), broker_on(path) as asker:
        assert overrides(asker, "g", GROUP) == {SESSION_TIMEOUT: "50000"}
    assert not [record for record in caplog.records if SESSION_TIMEOUT in record.message]


def test_times_follow_the_newest_image() -> None:
    image = MetadataImage()
    times = ImageGroupTimes(GroupsSettings(consumer_assignment_interval_ms=9), lambda: image)
    assert times.of("g") == ConsumerTimes(45_000, 5_000, 9)
    own = {SESSION_TIMEOUT: "50000", ASSIGNMENT_INTERVAL: "0", HEARTBEAT_INTERVAL: "1"}
    image = MetadataImage(groups=PersistentMap({"g": GroupImage(own, 1)}))
    assert times.of("g") == ConsumerTimes(50_000, 5_000, 0)
    assert times.of("h") == ConsumerTimes(45_000, 5_000, 9)


def test_times_of_share_groups_are_their_own() -> None:
    image = MetadataImage()
    times = ImageGroupTimes(GroupsSettings(share_assignment_interval_ms=9), lambda: image)
    assert times.of_share("g") == ConsumerTimes(45_000, 5_000, 9)
    own = {"share.session.timeout.ms": "50000", "share.heartbeat.interval.ms": "1"}
    image = MetadataImage(groups=PersistentMap({"g": GroupImage(own, 1)}))
    assert times.of_share("g") == ConsumerTimes(50_000, 5_000, 9)
    assert times.of("g") == ConsumerTimes(45_000, 5_000, 1_000)
