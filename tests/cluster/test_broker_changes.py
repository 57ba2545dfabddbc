"""Settings of brokers that change while they run: accepted and rejected changes."""

from uuid import UUID

import pytest

from penstock.cluster.broker_changes import (
    broker_layers,
    broker_settings_writes,
    decide_broker_settings,
)
from penstock.cluster.changes import BrokerSettingsChanged, apply
from penstock.cluster.configs.described_configs import BrokerLayers
from penstock.cluster.configs.setting_changes import EditKind, SettingEdit, SettingsChange
from penstock.cluster.differences import difference
from penstock.cluster.image import BrokerSettingsImage, MetadataImage, TopicImage
from penstock.cluster.keys import ALL_BROKERS, Keys
from penstock.cluster.link.interpretation import interpret
from penstock.cluster.persistent_map import PersistentMap
from penstock.cluster.stores.port import Delete, Event, KeyValue, Put
from penstock.core.errors import InvalidRequestError, InvalidTopicConfigError, PenstockError

KEYS = Keys("/penstock/test/")
SET, DELETE, APPEND, SUBTRACT = EditKind


def with_settings(**brokers: dict[str, str]) -> MetadataImage:
    changes = [
        BrokerSettingsChanged(name.removeprefix("_"), BrokerSettingsImage(settings, 3))
        for name, settings in brokers.items()
    ]
    return apply(MetadataImage(), changes, 3)


def decide(
    image: MetadataImage, name: str, *edits: SettingEdit, replaces_all: bool = False
) -> dict[str, str]:
    change = SettingsChange(name, edits, replaces_all)
    return decide_broker_settings(image, change, broker_layers(image, 1, {}))


def test_settings_are_set_and_deleted() -> None:
    image = with_settings(_1={"log.roll.ms": "9"})
    changed = decide(image, "1", SettingEdit("log.retention.ms", SET, "5"))
    assert changed == {"log.roll.ms": "9", "log.retention.ms": "5"}
    assert decide(image, "1", SettingEdit("log.roll.ms", DELETE)) == {}
    assert decide(image, "1", SettingEdit("never.set", DELETE)) == {"log.roll.ms": "9"}
    replaced = decide(image, "1", SettingEdit("log.retention.ms", SET, "5"), replaces_all=True)
    assert replaced == {"log.retention.ms": "5"}
    assert decide(image, ALL_BROKERS, SettingEdit("log.roll.ms", SET, "4")) == {"log.roll.ms": "4"}


def test_lists_get_items_added_and_taken_away() -> None:
    image = MetadataImage()
    added = decide(image, "1", SettingEdit("log.cleanup.policy", APPEND, "compact"))
    assert added == {"log.cleanup.policy": "delete,compact"}
    taken = decide(image, "1", SettingEdit("log.cleanup.policy", SUBTRACT, "delete"))
    assert taken == {"log.cleanup.policy": ""}


@pytest.mark.parametrize(
    ("edit", "kind", "message"),
    [
        (SettingEdit("node.id", SET, "4"), InvalidRequestError, r"dynamically: \[node.id\]"),
        (SettingEdit("no.such", SET, "4"), InvalidRequestError, r"dynamically: \[no.such\]"),
        (SettingEdit("log.dirs", APPEND, "x"), InvalidRequestError, r"dynamically: \[log.dirs\]"),
        (SettingEdit("log.retention.ms", SET, "soon"), InvalidRequestError, "type LONG"),
        (SettingEdit("log.segment.bytes", SET, "1"), InvalidRequestError, "at least 1048576"),
        (SettingEdit("compression.lz4.level", SET, "3"), InvalidRequestError, "no use for it yet"),
        (SettingEdit("no.such", APPEND, "4"), InvalidTopicConfigError, "Unknown config name"),
        (
            SettingEdit("log.retention.ms", APPEND, "4"),
            InvalidTopicConfigError,
            "Config value append is not allowed for config key: log.retention.ms",
        ),
        (
            SettingEdit("log.cleaner.min.compaction.lag.ms", SET, str(2**63 - 1)),
            InvalidRequestError,
            "topic t: conflict",
        ),
    ],
)
def test_what_is_refused(edit: SettingEdit, kind: type[PenstockError], message: str) -> None:
    topic = TopicImage("t", UUID(int=1), (), {"max.compaction.lag.ms": "5"}, 1)
    image = MetadataImage(
        topics=PersistentMap[str, TopicImage]().changed({"t": topic}, frozenset())
    )
    with pytest.raises(kind, match=message):
        decide(image, "1", edit)


def test_values_that_contradict_each_other_across_layers() -> None:
    image = with_settings(_1={"log.cleaner.min.compaction.lag.ms": "10"})
    edit = SettingEdit("log.cleaner.max.compaction.lag.ms", SET, "9")
    with pytest.raises(InvalidRequestError, match="conflict"):
        decide(image, ALL_BROKERS, edit)


def test_what_is_written_reads_back() -> None:
    image = with_settings(_1={"log.roll.ms": "9"})
    writes = broker_settings_writes(KEYS, image, "1", {"log.roll.ms": "8"}, ())
    assert [compare.key for compare in writes.compares] == [KEYS.broker_settings("1")]
    (put,) = writes.operations
    assert isinstance(put, Put)
    event = Event(put.key, KeyValue(put.key, put.value, 1, 5, 0))
    after = apply(image, interpret(KEYS, [event]), 5)
    assert after.settings_of_broker("1") == {"log.roll.ms": "8"}
    assert broker_layers(after, 1, {}) == BrokerLayers(own={"log.roll.ms": "8"})
    assert apply(image, difference(image, after), 5) == after
    (gone,) = broker_settings_writes(KEYS, image, "1", {}, ()).operations
    assert isinstance(gone, Delete)
    nothing = apply(after, interpret(KEYS, [Event(gone.key, None)]), 6)
    assert nothing.settings_of_broker("1") == {}
    assert apply(after, difference(after, nothing), 6) == nothing
