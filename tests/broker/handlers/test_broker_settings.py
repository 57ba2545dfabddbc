"""Settings of the broker that change while it runs, on Penstock and on Apache Kafka.

Kafka answers before its broker applies a change: there the tests wait; Penstock must have applied
it.
"""

import time
from collections.abc import Iterator

import pytest

from penstock.protocol.error_codes import ErrorCode
from tests.broker.handlers.asker import SECONDS_MAX, Asker, batch_of, fresh_name
from tests.broker.handlers.configs import (
    APPEND,
    BROKER,
    DELETE,
    SET,
    SUBTRACT,
    TOPIC,
    Edit,
    alter,
    increment,
)
from tests.broker.handlers.test_describe_configs import ask, configs_in

OWN, SHARED = 2, 3
ALL = ""
RETENTION, SEGMENT, POLICY = "log.retention.ms", "log.segment.bytes", "log.cleanup.policy"
CHANGED = (RETENTION, SEGMENT, POLICY, "message.max.bytes")


@pytest.fixture(autouse=True)
def _clean(asker: Asker) -> Iterator[None]:
    yield
    for name in ("1", ALL):
        increment(asker, BROKER, name, *((setting, DELETE, None) for setting in CHANGED))
        until(asker, BROKER, name, RETENTION, None)


def value_of(asker: Asker, kind: int, name: str, setting: str) -> str | None:
    found = configs_in(ask(asker, kind, name, (setting,)))
    return found[setting].value if setting in found else None


def until(asker: Asker, kind: int, name: str, setting: str, value: str | None) -> None:
    deadline = time.monotonic() + (SECONDS_MAX if asker.is_kafka else 0)
    while (found := value_of(asker, kind, name, setting)) != value:
        assert time.monotonic() < deadline, found
        time.sleep(0.02)


def change(asker: Asker, name: str, *edits: Edit, validate_only: bool = False) -> None:
    result = increment(asker, BROKER, name, *edits, validate_only=validate_only)
    assert result.error_code == ErrorCode.NONE, result


def test_a_topic_follows_the_broker(asker: Asker) -> None:
    topic, stubborn = fresh_name(), fresh_name()
    asker.create(topic)
    asker.create(stubborn, configs={"retention.ms": "123456"})
    change(asker, ALL, (RETENTION, SET, "900000"))
    until(asker, TOPIC, topic, "retention.ms", "900000")
    change(asker, "1", (RETENTION, SET, "800000"))
    until(asker, TOPIC, topic, "retention.ms", "800000")
    found = configs_in(ask(asker, TOPIC, topic, ("retention.ms",), synonyms=True))["retention.ms"]
    assert found.config_source == OWN
    assert [(one.name, one.value, one.source) for one in found.synonyms] == [
        (RETENTION, "800000", OWN),
        (RETENTION, "900000", SHARED),
        ("log.retention.hours", "168", 5),
    ]
    assert value_of(asker, TOPIC, stubborn, "retention.ms") == "123456"
    assert value_of(asker, BROKER, ALL, RETENTION) == "900000"
    change(asker, "1", (RETENTION, DELETE, None))
    until(asker, TOPIC, topic, "retention.ms", "900000")
    change(asker, ALL, (RETENTION, DELETE, None))
    until(asker, TOPIC, topic, "retention.ms", "604800000")


def test_what_is_in_force_is_carried_out(asker: Asker) -> None:
    topic = fresh_name()
    asker.create(topic)
    large = batch_of(b"x" * 2_000)
    assert asker.produce(topic, large).error_code == ErrorCode.NONE
    change(asker, "1", ("message.max.bytes", SET, "1000"))
    until(asker, TOPIC, topic, "max.message.bytes", "1000")
    assert asker.produce(topic, large).error_code == ErrorCode.MESSAGE_TOO_LARGE
    change(asker, "1", ("message.max.bytes", DELETE, None))
    until(asker, TOPIC, topic, "max.message.bytes", "1048588")
    assert asker.produce(topic, large).error_code == ErrorCode.NONE


def test_a_new_topic_begins_with_what_is_in_force(asker: Asker) -> None:
    change(asker, ALL, (SEGMENT, SET, "2097152"))
    until(asker, BROKER, "1", SEGMENT, "2097152")
    topic = fresh_name()
    asker.create(topic)
    assert value_of(asker, TOPIC, topic, "segment.bytes") == "2097152"


def test_lists_get_items_added_and_taken_away(asker: Asker) -> None:
    change(asker, "1", (POLICY, APPEND, "compact"))
    until(asker, BROKER, "1", POLICY, "delete,compact")
    change(asker, "1", (POLICY, SUBTRACT, "delete"))
    until(asker, BROKER, "1", POLICY, "compact")


def test_validation_alone_changes_nothing(asker: Asker) -> None:
    change(asker, "1", (RETENTION, SET, "5"), validate_only=True)
    assert value_of(asker, BROKER, "1", RETENTION) is None


def test_replacing_takes_back_what_is_not_named(asker: Asker) -> None:
    change(asker, "1", (RETENTION, SET, "900000"), (SEGMENT, SET, "2097152"))
    until(asker, BROKER, "1", RETENTION, "900000")
    assert alter(asker, BROKER, "1", (SEGMENT, "3145728")).error_code == ErrorCode.NONE
    until(asker, BROKER, "1", SEGMENT, "3145728")
    until(asker, BROKER, "1", RETENTION, None)


@pytest.mark.parametrize(
    ("name", "edit", "code"),
    [
        ("1", ("node.id", SET, "5"), ErrorCode.INVALID_REQUEST),
        ("1", (RETENTION, SET, "soon"), ErrorCode.INVALID_REQUEST),
        ("1", (SEGMENT, SET, "1"), ErrorCode.INVALID_REQUEST),
        (ALL, (RETENTION, SET, "soon"), ErrorCode.INVALID_REQUEST),
        ("7", (RETENTION, SET, "5"), ErrorCode.INVALID_REQUEST),
        ("1", (RETENTION, APPEND, "5"), ErrorCode.INVALID_CONFIG),
    ],
)
def test_what_is_refused(asker: Asker, name: str, edit: Edit, code: ErrorCode) -> None:
    result = increment(asker, BROKER, name, edit)
    assert result.error_code == code, result
    assert value_of(asker, BROKER, "1", RETENTION) is None


def test_one_wrong_setting_leaves_the_others(asker: Asker) -> None:
    wrong = ((RETENTION, SET, "5"), (SEGMENT, SET, "soon"))
    assert increment(asker, BROKER, "1", *wrong).error_code == ErrorCode.INVALID_REQUEST
    assert value_of(asker, BROKER, "1", RETENTION) is None
