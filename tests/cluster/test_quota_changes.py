"""Quotas: decisions, writes, the entities that a filter matches, and lost answers."""

import math
import time
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.cluster import quota_changes
from penstock.cluster.changes import QuotasChanged, apply
from penstock.cluster.differences import difference
from penstock.cluster.image import MetadataImage, QuotaImage
from penstock.cluster.keys import KeyKind, Keys, ParsedKey
from penstock.cluster.persistent_map import PersistentMap
from penstock.cluster.quota_changes import (
    MATCH_DEFAULT,
    MATCH_EXACT,
    MATCH_SPECIFIED,
    FilterPart,
    QuotaChange,
    decide_quotas,
    find_quotas,
    quota_writes,
)
from penstock.cluster.quota_entities import ALL_QUOTAS, QuotaEntity, entity_of, entity_of_text
from penstock.cluster.service import MetadataService
from penstock.cluster.stores.port import Compare, Delete, Put
from penstock.cluster.values import read_quotas, write_quotas
from penstock.core.errors import (
    InvalidRequestError,
    PenstockError,
    PolicyViolationError,
    StoreError,
    UnsupportedEntityError,
)
from penstock.core.limits import QUOTA_ENTITY_NAME_BYTES_MAX
from penstock.testing.memory_store import Fault, MemoryMetadataStore
from tests.cluster.test_service import loaded, run, settled

KEYS = Keys()
HAD = {"producer_byte_rate": 100.0}
NAMES = st.none() | st.text(min_size=1, max_size=20)
ENTITIES = st.one_of(
    st.builds(lambda name: entity_of([("user", name)]), NAMES),
    st.builds(lambda name: entity_of([("client-id", name)]), NAMES),
    st.builds(lambda one, two: entity_of([("client-id", one), ("user", two)]), NAMES, NAMES),
    st.builds(lambda name: entity_of([("ip", name)]), NAMES),
)
USER = entity_of([("user", "u")])
IP = entity_of([("ip", "10.0.0.1")])


def image_with(entity: QuotaEntity = USER, quotas: Mapping[str, float] = HAD) -> MetadataImage:
    return MetadataImage(quotas=PersistentMap({entity: QuotaImage(quotas, 9)}))


def change(entity: QuotaEntity, *edits: tuple[str, float | None]) -> QuotaChange:
    return QuotaChange(entity, edits)


@given(ENTITIES)
def test_an_entity_reads_back_from_its_key(entity: QuotaEntity) -> None:
    key = KEYS.quotas(entity)
    assert key.isascii()
    parsed = KEYS.parse(key)
    assert parsed == ParsedKey(KeyKind.QUOTAS, entity.text())
    assert entity_of_text(parsed.name) == entity


@given(st.dictionaries(st.text(), st.floats(min_value=1e-300, allow_infinity=False)))
def test_quotas_read_back(quotas: dict[str, float]) -> None:
    assert read_quotas(write_quotas(quotas)) == quotas


@pytest.mark.parametrize(
    "value", [b"", b"{}", b'{"v":1}', b'{"v":1,"quotas":{"a":"1"}}', b'{"v":1,"quotas":{"a":0}}']
)
def test_damaged_quotas_raise_the_one_error(value: bytes) -> None:
    with pytest.raises(StoreError):
        read_quotas(value)


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (change(entity_of([])), "Invalid empty client quota entity"),
        (change(entity_of([("group", "g")])), "Unhandled client quota entity type: group"),
        (change(entity_of([("user", "")])), "Empty user not supported"),
        (change(entity_of([("ip", "10.0.0.1"), ("user", "u")])), "Invalid quota entity combinat"),
        (change(entity_of([("ip", "nowhere")])), "nowhere is not a valid IP or resolvable host."),
        (change(USER, ("nope", 1.0)), "Invalid configuration key nope"),
        (change(USER, ("connection_creation_rate", 1.0)), "Invalid configuration key connection"),
        (change(IP, ("producer_byte_rate", 1.0)), "Invalid configuration key producer_byte_rate"),
        (change(USER, ("producer_byte_rate", 0.0)), "Quota producer_byte_rate must be greater th"),
        (change(USER, ("request_percentage", math.nan)), "must be greater than 0"),
        (change(USER, ("request_percentage", math.inf)), "must be a finite number"),
        (change(USER, ("producer_byte_rate", 1e19)), "producer_byte_rate is too large for a LONG."),
        (
            change(IP, ("connection_creation_rate", 2.0**31)),
            "connection_creation_rate is too large for an INT.",
        ),
        (change(USER, ("consumer_byte_rate", 1.5)), "consumer_byte_rate cannot be a fractional"),
        (
            change(USER, ("consumer_byte_rate", 1.0), ("consumer_byte_rate", 2.0)),
            "not updating quota for this entity ClientQuotaEntity(entries={user=u})",
        ),
        (
            change(USER, *((name, None) for name in (*ALL_QUOTAS, "one too many"))),
            "Invalid configuration key one too many",
        ),
    ],
)
def test_what_is_refused(asked: QuotaChange, text: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        decide_quotas(MetadataImage(), asked)
    assert text in str(caught.value)


def test_quotas_are_set_changed_and_removed() -> None:
    image = image_with()
    assert decide_quotas(image, change(USER, ("request_percentage", 0.5))) == {
        **HAD,
        "request_percentage": 0.5,
    }
    assert decide_quotas(image, change(USER, ("producer_byte_rate", 7.0))) == {
        "producer_byte_rate": 7.0
    }
    assert decide_quotas(image, change(USER, ("producer_byte_rate", None))) == {}
    assert decide_quotas(image, change(USER, ("never heard of", None))) == HAD


def test_looking_for_a_key_given_twice_takes_time_for_each_key_once() -> None:
    many = change(USER, *((str(number), None) for number in range(100_000)), ("0", None))
    began = time.perf_counter()
    with pytest.raises(InvalidRequestError, match="Duplicate quota key 0"):
        decide_quotas(MetadataImage(), many)
    # Comparing each with each takes minutes.
    assert time.perf_counter() - began < 5


def test_a_change_compares_with_the_one_before() -> None:
    key = KEYS.quotas(USER)
    fresh = quota_writes(KEYS, MetadataImage(), USER, HAD, ())
    assert fresh.compares == (Compare.unchanged(key, 0),)
    assert fresh.operations == (Put(key, write_quotas(HAD)),)
    gone = quota_writes(KEYS, image_with(), USER, {}, ())
    assert gone.compares == (Compare.unchanged(key, 9),)
    assert gone.operations == (Delete(key),)


def test_entities_and_names_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota_changes, "QUOTA_ENTITIES_MAX", 1)
    image = image_with()
    other = entity_of([("user", "v")])
    with pytest.raises(PolicyViolationError, match="1 entities have quotas"):
        decide_quotas(image, change(other, ("request_percentage", 1.0)))
    assert decide_quotas(image, change(USER, ("request_percentage", 1.0)))
    assert decide_quotas(image, change(other, ("request_percentage", None))) == {}
    long = entity_of([("user", "n" * (QUOTA_ENTITY_NAME_BYTES_MAX + 1))])
    with pytest.raises(PolicyViolationError, match="1024 bytes"):
        decide_quotas(MetadataImage(), change(long, ("request_percentage", 1.0)))


@settings(max_examples=25)
@given(
    st.dictionaries(ENTITIES, st.sampled_from([HAD, {"request_percentage": 1.0}]), max_size=5),
    st.dictionaries(ENTITIES, st.sampled_from([HAD, {"request_percentage": 1.0}]), max_size=5),
)
def test_a_difference_leads_from_one_image_to_the_other(
    first: dict[QuotaEntity, Mapping[str, float]], second: dict[QuotaEntity, Mapping[str, float]]
) -> None:
    before = MetadataImage(
        revision=1, quotas=PersistentMap({e: QuotaImage(q, 1) for e, q in first.items()})
    )
    after = MetadataImage(
        revision=2, quotas=PersistentMap({e: QuotaImage(q, 2) for e, q in second.items()})
    )
    changes = difference(before, after)
    assert all(isinstance(one, QuotasChanged) for one in changes)
    assert dict(apply(before, changes, 2).quotas) == dict(after.quotas)


# --- Filters ---

ALL = [
    entity_of([("user", "u")]),
    entity_of([("user", None)]),
    entity_of([("user", "u"), ("client-id", "c")]),
    entity_of([("client-id", "c")]),
    entity_of([("ip", "10.0.0.1")]),
    entity_of([("ip", None)]),
]
MANY = MetadataImage(quotas=PersistentMap({entity: QuotaImage(HAD, 1) for entity in ALL}))


@pytest.mark.parametrize(
    ("parts", "strict", "found"),
    [
        ([], False, ALL),
        ([], True, []),
        ([FilterPart("user", MATCH_EXACT, "u")], False, [ALL[0], ALL[2]]),
        ([FilterPart("user", MATCH_EXACT, "u")], True, [ALL[0]]),
        ([FilterPart("user", MATCH_DEFAULT, None)], False, [ALL[1]]),
        ([FilterPart("user", MATCH_SPECIFIED, None)], True, [ALL[0], ALL[1]]),
        ([FilterPart("ip", MATCH_SPECIFIED, None)], False, [ALL[4], ALL[5]]),
        (
            [FilterPart("user", MATCH_SPECIFIED, None), FilterPart("client-id", MATCH_EXACT, "c")],
            True,
            [ALL[2]],
        ),
    ],
)
def test_which_entities_a_filter_means(
    parts: list[FilterPart], strict: bool, found: list[QuotaEntity]
) -> None:
    assert {entity for entity, _ in find_quotas(MANY, parts, strict=strict)} == set(found)


@pytest.mark.parametrize(
    ("parts", "error"),
    [
        ([FilterPart("", MATCH_EXACT, "u")], InvalidRequestError),
        ([FilterPart("user", MATCH_EXACT, "u")] * 2, InvalidRequestError),
        ([FilterPart("group", MATCH_EXACT, "u")], UnsupportedEntityError),
        ([FilterPart("user", MATCH_EXACT, None)], InvalidRequestError),
        ([FilterPart("user", MATCH_DEFAULT, "u")], InvalidRequestError),
        ([FilterPart("user", MATCH_SPECIFIED, "u")], InvalidRequestError),
        ([FilterPart("user", 3, None)], InvalidRequestError),
        (
            [FilterPart("user", MATCH_EXACT, "u"), FilterPart("ip", MATCH_DEFAULT, None)],
            InvalidRequestError,
        ),
    ],
)
def test_filters_that_are_refused(parts: list[FilterPart], error: type[PenstockError]) -> None:
    with pytest.raises(error):
        find_quotas(MANY, parts, strict=False)


# --- The service ---


def test_the_service_writes_what_was_decided_and_nothing_twice() -> None:
    async def body(service: MetadataService, store: MemoryMetadataStore) -> None:
        await service.change_quotas(change(USER, ("producer_byte_rate", 5.0)))
        assert service.image.quotas[USER].quotas == {"producer_byte_rate": 5.0}
        revision = service.image.revision
        await service.change_quotas(change(USER, ("producer_byte_rate", 5.0)))
        await service.change_quotas(change(IP, ("connection_creation_rate", None)))
        await service.change_quotas(change(USER, ("consumer_byte_rate", 5.0)), validate_only=True)
        await settled(service, store)
        assert service.image.revision == revision
        assert (await loaded(store)).quotas == service.image.quotas
        await service.change_quotas(change(USER, ("producer_byte_rate", None)))
        assert not service.image.quotas
        assert not (await store.read(KEYS.quotas(USER))).values

    run(body)


def test_a_lost_answer_is_looked_up() -> None:
    async def body(service: MetadataService, store: MemoryMetadataStore) -> None:
        store.faults.append(Fault.ANSWER_LOST)
        await service.change_quotas(change(USER, ("producer_byte_rate", 5.0)))
        assert service.image.quotas[USER].quotas == {"producer_byte_rate": 5.0}

    run(body)
