"""Settings of single groups: decisions, writes, and lost answers."""

import asyncio
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster import group_changes
from penstock.cluster.changes import GroupSettingsChanged, apply
from penstock.cluster.configs.group_configs import HEARTBEAT_INTERVAL, SESSION_TIMEOUT, group_rules
from penstock.cluster.configs.setting_changes import EditKind, SettingEdit, SettingsChange
from penstock.cluster.differences import difference
from penstock.cluster.group_changes import decide_group_settings, group_settings_writes
from penstock.cluster.image import GroupImage, MetadataImage
from penstock.cluster.keys import KeyKind, Keys, ParsedKey
from penstock.cluster.persistent_map import PersistentMap
from penstock.cluster.service import MetadataService
from penstock.cluster.stores.port import Compare, Delete, Put
from penstock.cluster.values import read_settings
from penstock.core.errors import (
    InvalidRequestError,
    InvalidTopicConfigError,
    PenstockError,
    PolicyViolationError,
    StoreError,
)
from penstock.core.limits import GROUP_WITH_SETTINGS_NAME_BYTES_MAX
from penstock.core.settings.coordinator_settings import GroupsSettings
from penstock.testing.memory_store import Fault, MemoryMetadataStore
from tests.cluster.test_service import loaded, run, settled

KEYS = Keys()
RULES = group_rules(GroupsSettings())
HAD = {SESSION_TIMEOUT: "50000"}


def image_with(name: str = "g", settings: Mapping[str, str] = HAD) -> MetadataImage:
    return MetadataImage(groups=PersistentMap({name: GroupImage(settings, 9)}))


def change(
    *edits: tuple[str, EditKind, str], group: str = "g", replaces_all: bool = False
) -> SettingsChange:
    return SettingsChange(group, tuple(SettingEdit(*edit) for edit in edits), replaces_all)


@pytest.mark.parametrize(
    ("asked", "error", "text"),
    [
        (change(group=""), InvalidRequestError, "Default group resources are not allowed."),
        # Kafka looks at the kind of an edit first, and at values last.
        (change(("nope", EditKind.APPEND, "x"), group=""), InvalidTopicConfigError, "Can't APPEND"),
        (change(("nope", EditKind.SET, "x"), group=""), InvalidRequestError, "Default group"),
        (
            change((SESSION_TIMEOUT, EditKind.SUBTRACT, "1")),
            InvalidTopicConfigError,
            f"Can't SUBTRACT to key {SESSION_TIMEOUT} because its type is not LIST.",
        ),
        (change(("nope", EditKind.SET, "1")), InvalidTopicConfigError, "Unknown group config"),
        (change((SESSION_TIMEOUT, EditKind.SET, "1")), InvalidTopicConfigError, "greater than or"),
    ],
)
def test_what_is_refused(asked: SettingsChange, error: type[PenstockError], text: str) -> None:
    with pytest.raises(error, match=text):
        decide_group_settings(image_with(), asked, RULES)


@pytest.mark.parametrize(
    ("asked", "after"),
    [
        (change(), HAD),
        (change((SESSION_TIMEOUT, EditKind.SET, "51000")), {SESSION_TIMEOUT: "51000"}),
        (change((HEARTBEAT_INTERVAL, EditKind.SET, "6000")), {**HAD, HEARTBEAT_INTERVAL: "6000"}),
        (change((SESSION_TIMEOUT, EditKind.DELETE, "")), {}),
        (change(("nope", EditKind.DELETE, "")), HAD),
        (
            change((HEARTBEAT_INTERVAL, EditKind.SET, "6000"), replaces_all=True),
            {HEARTBEAT_INTERVAL: "6000"},
        ),
        (change(replaces_all=True), {}),
    ],
)
def test_edits(asked: SettingsChange, after: dict[str, str]) -> None:
    assert decide_group_settings(image_with(), asked, RULES) == after


def test_all_settings_of_a_group_are_looked_at_together() -> None:
    out_of_bounds = image_with(settings={HEARTBEAT_INTERVAL: "1", SESSION_TIMEOUT: "50000"})
    with pytest.raises(InvalidTopicConfigError, match=HEARTBEAT_INTERVAL):
        decide_group_settings(out_of_bounds, change((SESSION_TIMEOUT, EditKind.DELETE, "")), RULES)
    mended = change((HEARTBEAT_INTERVAL, EditKind.DELETE, ""))
    assert decide_group_settings(out_of_bounds, mended, RULES) == HAD


def test_only_so_many_groups_have_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_changes, "GROUPS_WITH_SETTINGS_MAX", 1)
    edit = (SESSION_TIMEOUT, EditKind.SET, "51000")
    with pytest.raises(PolicyViolationError, match="1 groups have settings already"):
        decide_group_settings(image_with(), change(edit, group="h"), RULES)
    # A group with settings may change them, and an empty change needs no room.
    assert decide_group_settings(image_with(), change(edit), RULES)
    nothing = change((SESSION_TIMEOUT, EditKind.DELETE, ""), group="h")
    assert decide_group_settings(image_with(), nothing, RULES) == {}


def test_a_name_has_a_bound_in_bytes() -> None:
    edit = (SESSION_TIMEOUT, EditKind.SET, "51000")
    most = "é" * (GROUP_WITH_SETTINGS_NAME_BYTES_MAX // 2)
    assert decide_group_settings(MetadataImage(), change(edit, group=most), RULES)
    with pytest.raises(PolicyViolationError, match="1024 bytes at most"):
        decide_group_settings(MetadataImage(), change(edit, group=most + "x"), RULES)


def test_a_change_compares_with_the_last_one() -> None:
    key = KEYS.group_settings("g")
    guard = Compare.absent("guard")
    new = group_settings_writes(KEYS, MetadataImage(), "g", HAD, (guard,))
    assert new.compares == (guard, Compare.unchanged(key, 0))
    (write,) = new.operations
    assert isinstance(write, Put)
    assert (write.key, read_settings(write.value)) == (key, HAD)
    gone = group_settings_writes(KEYS, image_with(), "g", {}, ())
    assert gone.compares == (Compare.unchanged(key, 9),)
    assert gone.operations == (Delete(key),)


@given(st.text())
def test_any_name_becomes_a_printable_key_and_back(name: str) -> None:
    key = KEYS.group_settings(name)
    assert key.isprintable()
    assert key.isascii()
    assert key.count("/") == KEYS.root.count("/") + 2
    assert KEYS.parse(key) == ParsedKey(KeyKind.GROUP_SETTINGS, name)


def test_an_image_follows_and_differs() -> None:
    before = image_with()
    other = GroupImage({HEARTBEAT_INTERVAL: "6000"}, 11)
    changes = (GroupSettingsChanged("h", other), GroupSettingsChanged("g", None))
    after = apply(before, changes, 11)
    assert dict(after.groups) == {"h": other}
    assert after.group_settings("g") == {}
    assert dict(before.groups) == {"g": GroupImage(HAD, 9)}
    assert difference(before, after) == changes


def test_a_change_is_in_the_store_and_in_the_image() -> None:
    async def body(service: MetadataService, store: MemoryMetadataStore) -> None:
        asked = change((SESSION_TIMEOUT, EditKind.SET, " 50000"), group="a/b %\n")
        validated = await service.change_group_settings(asked, RULES, validate_only=True)
        assert validated == HAD
        assert not service.image.groups
        assert await service.change_group_settings(asked, RULES) == HAD
        assert (await loaded(store)).group_settings("a/b %\n") == HAD
        revision = service.image.revision
        await service.change_group_settings(asked, RULES)
        assert service.image.revision == revision, "what is so already is not written"
        nothing = change((SESSION_TIMEOUT, EditKind.DELETE, ""), group="a/b %\n")
        assert await service.change_group_settings(nothing, RULES) == {}
        await settled(service, store)
        assert await loaded(store) == service.image
        assert not service.image.groups

    run(body)


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.ANSWER_LOST, Fault.LATE])
def test_a_write_whose_answer_is_lost_is_made_once(fault: Fault) -> None:
    async def body(service: MetadataService, store: MemoryMetadataStore) -> None:
        store.faults.append(fault)
        asked = change((SESSION_TIMEOUT, EditKind.SET, "50000"))
        await service.change_group_settings(asked, RULES)
        await settled(service, store)
        assert service.image.group_settings("g") == HAD
        assert await loaded(store) == service.image

    run(body)


def test_a_store_that_refuses_changes_nothing() -> None:
    async def body(service: MetadataService, store: MemoryMetadataStore) -> None:
        store.faults.append(Fault.REFUSED)
        with pytest.raises(StoreError):
            await service.change_group_settings(
                change((SESSION_TIMEOUT, EditKind.SET, "50000")), RULES
            )
        assert not service.image.groups
        assert await loaded(store) == service.image

    run(body)


def test_two_changes_at_once_are_both_made() -> None:
    async def body(service: MetadataService, store: MemoryMetadataStore) -> None:
        await asyncio.gather(
            service.change_group_settings(change((SESSION_TIMEOUT, EditKind.SET, "50000")), RULES),
            service.change_group_settings(
                change((HEARTBEAT_INTERVAL, EditKind.SET, "6000")), RULES
            ),
        )
        assert service.image.group_settings("g") == {**HAD, HEARTBEAT_INTERVAL: "6000"}
        assert await loaded(store) == service.image

    run(body)


def test_who_never_gets_through_is_told() -> None:
    async def body(service: MetadataService, store: MemoryMetadataStore) -> None:
        key = KEYS.group_settings("g")
        plain = store.transact
        written = 0

        async def overtaken(*arguments: object, **more: object) -> object:
            nonlocal written
            written += 1
            value = b'{"v":1,"settings":{"consumer.session.timeout.ms":"%d"}}' % (50_000 + written)
            await plain((), (Put(key, value),))
            return await plain(*arguments, **more)  # type: ignore[arg-type]

        store.transact = overtaken  # type: ignore[method-assign, assignment]
        with pytest.raises(StoreError, match="under every attempt"):
            await service.change_group_settings(
                change((HEARTBEAT_INTERVAL, EditKind.SET, "6000")), RULES
            )

    run(body)
