"""IncrementalAlterConfigs: settings change one by one, and running logs follow them."""

from functools import partial

import pytest

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsResponse
from tests.broker.handlers.asker import Asker, batch_of, fresh_name
from tests.broker.handlers.configs import (
    APPEND,
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    DELETE,
    GROUP,
    SET,
    SUBTRACT,
    TOPIC,
    Edit,
    increment,
    increment_request,
    overrides,
)

REFUSED_TOPIC: list[tuple[tuple[Edit, ...], ErrorCode, str]] = [
    ((("retention.ms", SET, None),), ErrorCode.INVALID_REQUEST, "Null value not supported for : "),
    ((("retention.ms", SET, "x"),), ErrorCode.INVALID_CONFIG, "Not a number of type LONG"),
    ((("retention.ms", SET, "-2"),), ErrorCode.INVALID_CONFIG, "retention.ms"),
    (
        (("retention.ms", APPEND, "1"),),
        ErrorCode.INVALID_CONFIG,
        "Can't APPEND to key retention.ms because its type is not LIST.",
    ),
    ((("nope", SUBTRACT, "1"),), ErrorCode.INVALID_CONFIG, "Can't SUBTRACT to key nope because"),
    ((("nope", SET, "1"),), ErrorCode.INVALID_CONFIG, "Unknown topic config name: nope"),
    (
        (("retention.ms", SET, "1"), ("retention.ms", DELETE, None)),
        ErrorCode.INVALID_REQUEST,
        "Error due to duplicate config keys",
    ),
    ((("cleanup.policy", APPEND, "bogus"),), ErrorCode.INVALID_CONFIG, "cleanup.policy"),
    (
        (("min.compaction.lag.ms", SET, "100"), ("max.compaction.lag.ms", SET, "10")),
        ErrorCode.INVALID_CONFIG,
        "conflict topic config setting",
    ),
]


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize(("edits", "code", "text"), REFUSED_TOPIC, ids=range(len(REFUSED_TOPIC)))
def test_what_is_refused_of_a_topic(
    asker: Asker, edits: tuple[Edit, ...], code: ErrorCode, text: str, validate_only: bool
) -> None:
    name = fresh_name()
    asker.create(name)
    result = increment(asker, TOPIC, name, *edits, validate_only=validate_only)
    assert result.error_code == code, result
    assert text in (result.error_message or "")
    assert overrides(asker, name) == {}


REFUSED: list[tuple[int, str, Edit, ErrorCode, str]] = [
    (
        TOPIC,
        "nobody",
        ("retention.ms", SET, "1"),
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "The topic 'nobody' does not exist.",
    ),
    (TOPIC, "nobody", ("retention.ms", SET, "x"), ErrorCode.INVALID_CONFIG, "type LONG"),
    (TOPIC, "", ("retention.ms", SET, "1"), ErrorCode.INVALID_REQUEST, "Default topic resources"),
    (TOPIC, "!", ("a", DELETE, None), ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid"),
    (
        BROKER,
        "1",
        ("node.id", SET, "4"),
        ErrorCode.INVALID_REQUEST,
        "Cannot update these configs dynamically: [node.id]",
    ),
    (BROKER, "", ("log.dirs", SET, "/x"), ErrorCode.INVALID_REQUEST, "dynamically: [log.dirs]"),
    (
        BROKER,
        "x",
        ("node.id", SET, "4"),
        ErrorCode.INVALID_REQUEST,
        "Node id must be an integer, but it is: x",
    ),
    (BROKER, "7", ("node.id", SET, "4"), ErrorCode.INVALID_REQUEST, "Unexpected broker id, exp"),
    (BROKER, "1", ("node.id", 9, "4"), ErrorCode.INVALID_REQUEST, "Unknown operations type 9"),
    (
        BROKER,
        "1",
        ("node.id", APPEND, "4"),
        ErrorCode.INVALID_CONFIG,
        "Config value append is not allowed for config key: node.id",
    ),
    (BROKER, "1", ("nope", SUBTRACT, "4"), ErrorCode.INVALID_CONFIG, "Unknown config name: nope"),
    (BROKER_LOGGER, "1", ("nope", SET, "WARN"), ErrorCode.INVALID_CONFIG, "Logger nope does not"),
    (
        CLIENT_METRICS,
        "m",
        ("nope", SET, "1"),
        ErrorCode.INVALID_REQUEST,
        "Unknown client metrics configuration: nope",
    ),
    (CLIENT_METRICS, "", ("nope", SET, "1"), ErrorCode.INVALID_REQUEST, "Subscription name can't"),
    (GROUP, "g", ("nope", SET, "1"), ErrorCode.INVALID_CONFIG, "Unknown group config name: nope"),
    (GROUP, "", ("nope", DELETE, None), ErrorCode.INVALID_REQUEST, "Default group resources are"),
    (3, "x", ("nope", SET, "1"), ErrorCode.INVALID_REQUEST, "Unknown resource type 3"),
]


@pytest.mark.parametrize(("kind", "name", "edit", "code", "text"), REFUSED, ids=range(len(REFUSED)))
def test_what_is_refused(
    asker: Asker, kind: int, name: str, edit: Edit, code: ErrorCode, text: str
) -> None:
    result = increment(asker, kind, name, edit)
    assert result.error_code == code, result
    assert text in (result.error_message or "")


@pytest.mark.parametrize(("kind", "name"), [(BROKER, "1"), (BROKER, ""), (GROUP, "g")])
def test_to_delete_what_was_never_set_changes_nothing(asker: Asker, kind: int, name: str) -> None:
    result = increment(asker, kind, name, ("nope", DELETE, None))
    assert (result.error_code, result.error_message) == (ErrorCode.NONE, None)


def test_settings_are_set_and_deleted(asker: Asker) -> None:
    name = fresh_name()
    asker.create(name, configs={"segment.ms": "1000000"})
    edits = (("retention.ms", SET, "5000"), ("segment.ms", DELETE, None), ("nope", DELETE, None))
    assert increment(asker, TOPIC, name, *edits).error_code == ErrorCode.NONE
    asker.until(lambda: overrides(asker, name) == {"retention.ms": "5000"})


def test_lists_grow_and_shrink(asker: Asker) -> None:
    name = fresh_name()
    asker.create(name)
    for operation, value, after in (
        (APPEND, "delete,compact", "delete,compact"),
        (SUBTRACT, "delete", "compact"),
        (APPEND, "compact", "compact"),
        (SUBTRACT, "compact", ""),
    ):
        edit = ("cleanup.policy", operation, value)
        assert increment(asker, TOPIC, name, edit).error_code == ErrorCode.NONE
        wanted = {"cleanup.policy": after}
        asker.until(partial(lambda wanted: overrides(asker, name) == wanted, wanted))


def test_validating_changes_nothing(asker: Asker) -> None:
    name = fresh_name()
    asker.create(name)
    edit = ("retention.ms", SET, "5000")
    result = increment(asker, TOPIC, name, edit, validate_only=True)
    assert result.error_code == ErrorCode.NONE
    assert overrides(asker, name) == {}


def test_a_resource_changes_whole_or_not_at_all_and_others_by_themselves(asker: Asker) -> None:
    good, bad = fresh_name(), fresh_name()
    asker.create(good)
    asker.create(bad)
    request = increment_request(
        (TOPIC, bad, (("retention.ms", SET, "5000"), ("nope", SET, "1"))),
        (TOPIC, good, (("retention.ms", SET, "5000"),)),
    )
    answer = asker.ask(request, 1, IncrementalAlterConfigsResponse)
    codes = {result.resource_name: result.error_code for result in answer.responses}
    assert codes == {bad: ErrorCode.INVALID_CONFIG, good: ErrorCode.NONE}
    asker.until(lambda: overrides(asker, good) == {"retention.ms": "5000"})
    assert overrides(asker, bad) == {}


def test_a_resource_twice_is_refused_twice(asker: Asker) -> None:
    name = fresh_name()
    asker.create(name)
    one = (TOPIC, name, (("retention.ms", SET, "5000"),))
    answer = asker.ask(increment_request(one, one), 1, IncrementalAlterConfigsResponse)
    for result in answer.responses:
        assert result.error_code == ErrorCode.INVALID_REQUEST
        assert result.error_message == "Each resource must appear at most once."
    assert len(answer.responses) == 2


def test_producers_feel_the_new_settings_at_once(asker: Asker) -> None:
    name = fresh_name()
    asker.create(name)
    large = batch_of(b"x" * 1000)
    assert asker.produce(name, large).error_code == ErrorCode.NONE
    increment(asker, TOPIC, name, ("max.message.bytes", SET, "500"))
    too_large = ErrorCode.MESSAGE_TOO_LARGE
    asker.until(lambda: asker.produce(name, large).error_code == too_large)
    increment(asker, TOPIC, name, ("max.message.bytes", DELETE, None))
    asker.until(lambda: asker.produce(name, large).error_code == ErrorCode.NONE)


def test_an_operation_that_does_not_exist(penstock: Asker) -> None:
    # Kafka answers UNKNOWN_SERVER_ERROR.
    name = fresh_name()
    penstock.create(name)
    result = increment(penstock, TOPIC, name, ("retention.ms", 9, "1"))
    assert result.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("kind", "name", "key", "code"),
    [
        # Kafka changes these while it runs.
        (BROKER, "1", "log.segment.bytes", ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "m", "interval.ms", ErrorCode.INVALID_REQUEST),
        # Kafka has groups that these are for.
        (GROUP, "g", "streams.session.timeout.ms", ErrorCode.INVALID_CONFIG),
    ],
)
def test_what_penstock_cannot_change_yet_is_refused_by_name(
    penstock: Asker, kind: int, name: str, key: str, code: ErrorCode
) -> None:
    result = increment(penstock, kind, name, (key, SET, "50000"))
    assert result.error_code == code
    assert key in (result.error_message or "")
