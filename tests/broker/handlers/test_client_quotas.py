"""DescribeClientQuotas and AlterClientQuotas, as Kafka does them."""

import pytest

from penstock.protocol.error_codes import ErrorCode
from tests.broker.handlers.asker import Asker, fresh_name
from tests.broker.handlers.quotas import (
    DEFAULT,
    EXACT,
    SPECIFIED,
    Entity,
    alter,
    describe,
    described,
    entry_of,
    set_quotas,
)


@pytest.mark.parametrize(
    "entity",
    [
        {"user": "u"},
        {"user": None},
        {"client-id": "c"},
        {"client-id": None},
        {"user": "u", "client-id": "c"},
        {"user": "u", "client-id": None},
        {"user": None, "client-id": "c"},
        {"user": None, "client-id": None},
    ],
    ids=str,
)
def test_quotas_of_every_kind_of_client_are_kept(asker: Asker, entity: Entity) -> None:
    # High enough for other users of the broker.
    wanted: dict[str, float | None] = {
        "producer_byte_rate": 1e12,
        "consumer_byte_rate": 2e12,
        "request_percentage": 1e6,
        "controller_mutation_rate": 1e6,
    }
    set_quotas(asker, entity, **wanted)
    assert described(asker, entity) == {frozenset(entity.items()): wanted}
    set_quotas(asker, entity, **dict.fromkeys(wanted))
    assert described(asker, entity) == {}


@pytest.mark.parametrize("name", ["10.1.2.3", "::1", None])
def test_quotas_of_addresses_are_kept(asker: Asker, name: str | None) -> None:
    set_quotas(asker, {"ip": name}, connection_creation_rate=1e6)
    assert described(asker, {"ip": name}) == {
        frozenset({("ip", name)}): {"connection_creation_rate": 1e6}
    }
    set_quotas(asker, {"ip": name}, connection_creation_rate=None)
    assert described(asker, {"ip": name}) == {}


@pytest.mark.parametrize(
    ("entity", "quotas"),
    [
        ({}, {"producer_byte_rate": 1.0}),
        ({"group": "g"}, {"producer_byte_rate": 1.0}),
        ({"user": ""}, {"producer_byte_rate": 1.0}),
        ({"user": "u", "ip": "10.1.2.3"}, {"connection_creation_rate": 1.0}),
        ({"ip": "no such.host name"}, {"connection_creation_rate": 1.0}),
        ({"user": "u"}, {"nope": 1.0}),
        ({"user": "u"}, {"connection_creation_rate": 1.0}),
        ({"ip": "10.1.2.3"}, {"producer_byte_rate": 1.0}),
        ({"user": "u"}, {"producer_byte_rate": -1.0}),
        ({"user": "u"}, {"producer_byte_rate": 1.5}),
        ({"ip": "10.1.2.3"}, {"connection_creation_rate": 1e10}),
    ],
    ids=str,
)
def test_what_is_refused(asker: Asker, entity: Entity, quotas: dict[str, float | None]) -> None:
    (result,) = alter(asker, entry_of(entity, quotas))
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert result.error_message


@pytest.mark.parametrize(
    ("entity", "quotas", "text"),
    [
        ({"user": "u"}, {"nope": 1.0}, "Invalid configuration key nope"),
        ({"user": "u"}, {"producer_byte_rate": 0.0}, "Quota producer_byte_rate must be greater"),
        ({"user": "u"}, {"producer_byte_rate": 1.5}, "producer_byte_rate cannot be a fractional"),
        ({"group": "g"}, {"producer_byte_rate": 1.0}, "Unhandled client quota entity type: group"),
        (
            {"ip": "10.1.2.3"},
            {"connection_creation_rate": 1e10},
            "Proposed value for connection_creation_rate is too large for an INT.",
        ),
    ],
)
def test_errors_say_what_kafka_says(
    asker: Asker, entity: Entity, quotas: dict[str, float | None], text: str
) -> None:
    (result,) = alter(asker, entry_of(entity, quotas))
    assert result.error_message is not None
    assert text in result.error_message


def test_each_entity_is_changed_or_refused_by_itself(asker: Asker) -> None:
    good, bad = fresh_name("good"), fresh_name("bad")
    results = alter(
        asker,
        entry_of({"user": good}, {"producer_byte_rate": 1e9}),
        entry_of({"user": bad}, {"producer_byte_rate": 1e9, "nope": 1.0}),
    )
    codes = {result.entity[0].entity_name: result.error_code for result in results}
    assert codes == {good: ErrorCode.NONE, bad: ErrorCode.INVALID_REQUEST}
    asker.until(lambda: bool(described(asker, {"user": good})))
    assert described(asker, {"user": bad}) == {}


def test_only_looking_changes_nothing(asker: Asker) -> None:
    name = fresh_name("user")
    entry = entry_of({"user": name}, {"producer_byte_rate": 1e9})
    (result,) = alter(asker, entry, validate_only=True)
    assert result.error_code == ErrorCode.NONE
    assert described(asker, {"user": name}) == {}


def test_removing_what_is_not_there_is_no_failure(asker: Asker) -> None:
    name = fresh_name("user")
    (result,) = alter(asker, entry_of({"user": name}, {"producer_byte_rate": None}))
    assert result.error_code == ErrorCode.NONE


def test_an_entity_that_is_named_twice_is_refused_once(asker: Asker) -> None:
    name = fresh_name("user")
    entry = entry_of({"user": name}, {"producer_byte_rate": 1e9})
    results = alter(asker, entry, entry)
    assert [result.error_code for result in results] == [ErrorCode.INVALID_REQUEST]


def test_filters(asker: Asker) -> None:
    user, client = fresh_name("user"), fresh_name("client")
    set_quotas(asker, {"user": user}, producer_byte_rate=1e9)
    set_quotas(asker, {"user": user, "client-id": client}, producer_byte_rate=1e9)
    assert len(describe(asker, ("user", EXACT, user)).entries or ()) == 2
    assert len(describe(asker, ("user", EXACT, user), strict=True).entries or ()) == 1
    both = (("user", EXACT, user), ("client-id", SPECIFIED, None))
    assert len(describe(asker, *both, strict=True).entries or ()) == 1
    assert describe(asker, ("user", EXACT, fresh_name("nobody"))).entries == ()
    everything = describe(asker).entries or ()
    assert len(everything) >= 2


@pytest.mark.parametrize(
    ("parts", "code"),
    [
        ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", DEFAULT, "u")], ErrorCode.INVALID_REQUEST),
        ([("user", 7, None)], ErrorCode.INVALID_REQUEST),
        ([("", EXACT, "u")], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, "u"), ("user", EXACT, "v")], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, "u"), ("ip", EXACT, "10.0.0.1")], ErrorCode.INVALID_REQUEST),
        ([("group", EXACT, "g")], ErrorCode.UNSUPPORTED_VERSION),
    ],
    ids=str,
)
def test_filters_that_are_refused(
    asker: Asker, parts: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    assert describe(asker, *parts).error_code == code
