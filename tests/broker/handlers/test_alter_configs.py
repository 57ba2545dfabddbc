"""AlterConfigs: the settings that are given replace all that were there."""

import pytest

from penstock.protocol.error_codes import ErrorCode
from tests.broker.handlers.asker import Asker, fresh_name
from tests.broker.handlers.configs import BROKER, BROKER_LOGGER, TOPIC, alter, overrides

REFUSED: list[tuple[int, str, tuple[tuple[str, str | None], ...], ErrorCode, str]] = [
    (TOPIC, "nobody", (("retention.ms", "5"),), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "nobody"),
    (TOPIC, "nobody", (("nope", "5"),), ErrorCode.INVALID_CONFIG, "Unknown topic config name"),
    (
        TOPIC,
        "nobody",
        (("retention.ms", None),),
        ErrorCode.INVALID_REQUEST,
        "Null value not supported for : retention.ms",
    ),
    (
        TOPIC,
        "nobody",
        (("a", "1"), ("a", "1")),
        ErrorCode.INVALID_REQUEST,
        "Error due to duplicate config keys",
    ),
    (TOPIC, "", (("retention.ms", "5"),), ErrorCode.INVALID_REQUEST, "Default topic resources"),
    (BROKER, "1", (("node.id", "4"),), ErrorCode.INVALID_REQUEST, "dynamically: [node.id]"),
    (BROKER, "x", (("node.id", "4"),), ErrorCode.INVALID_REQUEST, "Node id must be an integer"),
    (BROKER_LOGGER, "1", (("a", "WARN"),), ErrorCode.INVALID_REQUEST, "Unknown resource type 8"),
    (3, "1", (("a", "1"),), ErrorCode.INVALID_REQUEST, "Unknown resource type 3"),
]


@pytest.mark.parametrize(
    ("kind", "name", "settings", "code", "text"), REFUSED, ids=range(len(REFUSED))
)
def test_what_is_refused(
    asker: Asker,
    kind: int,
    name: str,
    settings: tuple[tuple[str, str | None], ...],
    code: ErrorCode,
    text: str,
) -> None:
    result = alter(asker, kind, name, *settings)
    assert result.error_code == code, result
    assert text in (result.error_message or "")


def test_what_is_not_given_goes_back_to_its_default(asker: Asker) -> None:
    name = fresh_name()
    asker.create(name, configs={"retention.ms": "5000", "segment.ms": "6000"})
    result = alter(asker, TOPIC, name, ("segment.ms", "7000"), ("cleanup.policy", "compact"))
    assert (result.error_code, result.error_message) == (ErrorCode.NONE, None)
    after = {"segment.ms": "7000", "cleanup.policy": "compact"}
    asker.until(lambda: overrides(asker, name) == after)
    assert alter(asker, TOPIC, name).error_code == ErrorCode.NONE
    asker.until(lambda: overrides(asker, name) == {})


def test_validating_changes_nothing(asker: Asker) -> None:
    name = fresh_name()
    asker.create(name, configs={"retention.ms": "5000"})
    result = alter(asker, TOPIC, name, ("segment.ms", "7000"), validate_only=True)
    assert result.error_code == ErrorCode.NONE
    assert overrides(asker, name) == {"retention.ms": "5000"}
