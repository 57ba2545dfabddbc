"""Settings of a fixture's broker: the project's lines, the test's table, its keywords, in order."""

import inspect

import pytest

from penstock.core.errors import ConfigError
from penstock.core.settings.config import BrokerConfig, load_settings
from penstock.core.settings.tree import Settings
from penstock.testing.fixture_settings import (
    KEYWORDS,
    broker_settings,
    names_data_dir,
    start_groups_at_once,
)
from penstock.testing.topic_names import fresh_topic_name

PARTITIONS = "topic_defaults.partitions_default"


def test_memory_and_a_free_port_unless_somebody_says_otherwise() -> None:
    usual = broker_settings([], {}, {})
    assert (usual.node.storage, usual.listener.port) == ("memory", 0)
    assert not usual.admin.enabled
    assert broker_settings([], {}, {"admin_port": 0}).admin.enabled
    chosen = broker_settings(["node.storage = 'disk'", "listener.port = 9999"], {}, {})
    assert (chosen.node.storage, chosen.listener.port) == ("disk", 9999)
    assert broker_settings([], {}, {"data_dir": "here"}).node.storage == "disk"


def test_groups_start_at_once_unless_the_settings_say_otherwise() -> None:
    """A test of a group took 3 s longer by the default that waits for more members."""
    delay = "groups.initial_rebalance_delay_ms"
    assert broker_settings([], {}, {}).groups.initial_rebalance_delay_ms == 0
    assert broker_settings([f"{delay} = 7"], {}, {}).groups.initial_rebalance_delay_ms == 7
    assert broker_settings([], {delay: 8}, {"port": 0}).groups.initial_rebalance_delay_ms == 8
    config = BrokerConfig(port=0, storage="memory", default_partitions=3)
    assert config.groups.initial_rebalance_delay_ms == 3_000
    fast = start_groups_at_once(config)
    assert (fast.groups.initial_rebalance_delay_ms, fast.listener.port) == (0, 0)
    assert start_groups_at_once(Settings()).groups.initial_rebalance_delay_ms == 0
    for chosen in (3_000, 0, 9):
        tree = load_settings(None, {}, {delay: chosen}).settings
        assert start_groups_at_once(tree) == tree
        kept = start_groups_at_once(BrokerConfig(port=0, settings=tree))
        assert kept.groups.initial_rebalance_delay_ms == chosen


@pytest.mark.parametrize(
    ("lines", "table"),
    [(["node.data_dir = 'here'"], {}), ([], {"node.data_dir": "here"})],
)
def test_a_directory_may_be_named_anywhere(lines: list[str], table: dict[str, object]) -> None:
    settings = broker_settings(lines, table, {})
    assert (settings.node.data_dir, settings.node.storage) == ("here", "disk")
    assert names_data_dir(lines, table, {})
    assert not names_data_dir([], {}, {"storage": "disk"})
    memory = broker_settings(lines, {**table, "node.storage": "memory"}, {})
    assert memory.node.storage == "memory"


def test_keywords_win_over_the_table_and_the_table_over_the_lines() -> None:
    lines = ["topic_defaults.partitions_default = 2", "node.id = 2"]
    table = {"topic_defaults.partitions_default": 3, "flush.mode": "os"}
    settings = broker_settings(lines, table, {"default_partitions": 4})
    assert (settings.topic_defaults.partitions_default, settings.node.id) == (4, 2)
    assert broker_settings(lines, table, {}).topic_defaults.partitions_default == 3
    assert settings.flush.mode == "os"


@pytest.mark.parametrize(
    ("lines", "table", "keywords", "message"),
    [
        (["topic_defaults.partitions = 3"], {}, {}, r"penstock_settings line 1.*not a setting"),
        ([], {"topic_defaults.partition_default": 3}, {}, f"Did you mean {PARTITIONS}"),
        ([], {PARTITIONS: "3"}, {}, f"{PARTITIONS} = '3'"),
        ([], {}, {"partitions": 3}, "not a keyword of penstock.BrokerConfig"),
        ([], {}, {"default_partitions": "3"}, f"{PARTITIONS} = '3'"),
    ],
)
def test_what_is_wrong_is_told(
    lines: list[str], table: dict[str, object], keywords: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        broker_settings(lines, table, keywords)


def test_the_keywords_are_those_of_broker_config() -> None:
    assert {*inspect.signature(BrokerConfig).parameters} - {"settings"} == KEYWORDS


@pytest.mark.parametrize("name", ["test_a[x/y é]", "", "...", "t" * 500])
def test_topic_names_are_valid_and_fresh(name: str) -> None:
    first, second = fresh_topic_name(name), fresh_topic_name(name)
    assert first != second
    assert len(first) <= 249
    assert set(first) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
