"""Access rules: decisions, writes, atomic deletions, and lost answers."""

import asyncio
from collections.abc import Generator, Sequence
from typing import TypeVar
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.cluster import acl_changes
from penstock.cluster.access.security_service import create_acls, delete_acls
from penstock.cluster.access_draft import AclRemovalNoted, AclsRemoved, AclStored
from penstock.cluster.acl_changes import (
    creation_writes,
    decide_creations,
    decide_deletions,
    deletion_writes,
    sweep_writes,
)
from penstock.cluster.changes import apply
from penstock.cluster.differences import difference
from penstock.cluster.image import MetadataImage
from penstock.cluster.keys import KeyKind, Keys, ParsedKey
from penstock.cluster.service import MetadataService
from penstock.cluster.stores.port import Delete, Put
from penstock.cluster.values import (
    read_acl,
    read_acl_removal,
    write_acl,
    write_acl_removal,
)
from penstock.core.errors import (
    InvalidRequestError,
    PenstockError,
    PolicyViolationError,
    StoreError,
)
from penstock.core.limits import STORE_OPERATIONS_MAX
from penstock.core.security_limits import ACL_TEXT_BYTES_MAX
from penstock.security.acls.filters import AclFilter
from penstock.security.acls.values import (
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from penstock.testing.memory_store import Fault, MemoryMetadataStore
from tests.cluster.test_service import BROKER, loaded, run, settled

KEYS = Keys()
ALL = AclFilter()
Result = TypeVar("Result")


def rule(
    name: str = "orders",
    *,
    principal: str = "User:alice",
    operation: Operation = Operation.READ,
    permission: Permission = Permission.ALLOW,
    pattern: PatternType = PatternType.LITERAL,
    resource_type: ResourceType = ResourceType.TOPIC,
    host: str = "*",
) -> AclBinding:
    return AclBinding(resource_type, name, pattern, principal, host, operation, permission)


def many(count: int, permission: Permission = Permission.ALLOW) -> list[AclBinding]:
    return [rule(f"topic-{number}", permission=permission) for number in range(count)]


RULES = st.builds(
    rule,
    st.sampled_from(["a", "b", "*"]),
    principal=st.sampled_from(["User:a", "User:b"]),
    operation=st.sampled_from([Operation.READ, Operation.ALL]),
    permission=st.sampled_from([Permission.ALLOW, Permission.DENY]),
    pattern=st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


def image_with(*rules: AclBinding) -> MetadataImage:
    return apply(
        MetadataImage(),
        [AclStored(UUID(int=number), one) for number, one in enumerate(rules, 1)],
        1,
    )


def ids_for(wanted: Sequence[object]) -> list[UUID]:
    return [UUID(int=1000 + number) for number in range(len(wanted))]


def decided(steps: Generator[None, None, Result]) -> Result:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result


def exact(one: AclBinding) -> AclFilter:
    return AclFilter(*one)


# --- Values and keys ---


@given(TEXTS, TEXTS, TEXTS, st.sampled_from(list(Operation)[2:]))
def test_a_rule_reads_back(name: str, principal: str, host: str, operation: Operation) -> None:
    written = rule(name, principal=f"User:{principal}", host=host, operation=operation)
    assert read_acl(write_acl(written)) == written


@pytest.mark.parametrize(
    "value",
    [
        b"{}",
        b'{"v":1}',
        write_acl(rule()).replace(b'"READ"', b'"EAT"'),
        write_acl(rule()).replace(b'"LITERAL"', b'"MATCH"'),
        write_acl(rule()).replace(b'"orders"', b'""'),
    ],
)
def test_a_damaged_rule_raises_the_one_error(value: bytes) -> None:
    with pytest.raises(StoreError):
        read_acl(value)


def test_a_removal_reads_back_and_damage_is_reported() -> None:
    ids = (UUID(int=1), UUID(int=2))
    assert read_acl_removal(write_acl_removal(ids)) == ids
    for value in (b'{"v":1}', b'{"v":1,"acls":["x"]}', b'{"v":1,"acls":[1]}'):
        with pytest.raises(StoreError):
            read_acl_removal(value)


def test_keys_are_parsed() -> None:
    found = UUID(int=5)
    assert KEYS.parse(KEYS.acl(found)) == ParsedKey(KeyKind.ACL, str(found))
    assert KEYS.parse(KEYS.acl_removal(found)) == ParsedKey(KeyKind.ACL_REMOVAL, str(found))


# --- Creation ---


def test_new_rules_are_written_once_and_known_ones_succeed() -> None:
    known, new = rule("known"), rule("new")
    wanted = [new, known, new]
    decision = decided(decide_creations(image_with(known), wanted, ids_for(wanted)))
    assert decision.outcomes == (None, None, None)
    assert dict(decision.new) == {UUID(int=1000): new}


@pytest.mark.parametrize(
    ("wrong", "kind", "text"),
    [
        (rule(""), InvalidRequestError, "Invalid empty resource name"),
        (rule(principal="alice"), InvalidRequestError, "no colon is present"),
        (rule(operation=Operation.ANY), InvalidRequestError, "Invalid operation ANY"),
        (rule("n" * 1025), PolicyViolationError, "resource name of an ACL may have 1024 bytes"),
        (rule(principal="User:" + "ü" * 600), PolicyViolationError, "principal of an ACL may"),
        (rule(host="h" * 1025), PolicyViolationError, "host of an ACL may have 1024 bytes"),
    ],
)
def test_rules_that_are_refused(wrong: AclBinding, kind: type[PenstockError], text: str) -> None:
    wanted = [rule("good"), wrong]
    decision = decided(decide_creations(MetadataImage(), wanted, ids_for(wanted)))
    assert decision.outcomes[0] is None
    assert isinstance(decision.outcomes[1], kind)
    assert text in str(decision.outcomes[1])
    assert list(decision.new.values()) == [rule("good")]


def test_a_text_of_the_greatest_length_is_accepted() -> None:
    wanted = [rule("n" * ACL_TEXT_BYTES_MAX)]
    assert decided(decide_creations(MetadataImage(), wanted, ids_for(wanted))).outcomes == (None,)


def test_a_request_above_kafkas_limit_is_refused_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acl_changes, "CHANGED_RULES_MAX", 2)
    wanted = [*many(3), rule(""), rule("known")]
    decision = decided(decide_creations(image_with(rule("known")), wanted, ids_for(wanted)))
    assert not decision.new
    text = "Unable to perform excessively large batch operation."
    assert [str(one) for one in decision.outcomes[:3]] == [text] * 3
    assert isinstance(decision.outcomes[3], InvalidRequestError)
    assert decision.outcomes[4] is None


def test_the_number_of_rules_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acl_changes, "ACLS_MAX", 2)
    image = image_with(rule("known"))
    decision = decided(decide_creations(image, many(2), ids_for(many(2))))
    assert not decision.new
    assert "1 ACLs exist and 2 more are too many: the maximum is 2" in str(decision.outcomes[0])
    assert decided(decide_creations(image, many(1), ids_for(many(1)))).new


def test_deny_rules_are_written_first() -> None:
    rules = [*many(STORE_OPERATIONS_MAX), *many(2, Permission.DENY)]
    writes = list(creation_writes(KEYS, dict(zip(ids_for(rules), rules, strict=True)), ()))
    stored = [
        read_acl(one.value).permission
        for transaction in writes
        for one in transaction.operations
        if isinstance(one, Put)
    ]
    assert [len(one.operations) for one in writes] == [STORE_OPERATIONS_MAX, 2]
    assert stored == [Permission.DENY] * 2 + [Permission.ALLOW] * STORE_OPERATIONS_MAX


# --- Deletion ---


def test_filters_find_their_rules() -> None:
    rules = [rule("a"), rule("a", permission=Permission.DENY), rule("b")]
    image = image_with(*rules)
    filters = [
        exact(rules[0]),
        AclFilter(name="a"),
        AclFilter(resource_type=ResourceType.UNKNOWN),
        exact(rule("nothing")),
    ]
    decision = decided(decide_deletions(image, filters, {}))
    assert decision.outcomes[0] == (rules[0],)
    assert set(decision.outcomes[1]) == set(rules[:2])  # type: ignore[arg-type]
    assert str(decision.outcomes[2]) == "Unknown patternFilter."
    assert decision.outcomes[3] == ()
    assert set(decision.deleted.values()) == set(rules[:2])


def test_too_many_deletions_refuse_the_whole_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acl_changes, "CHANGED_RULES_MAX", 2)
    decision = decided(decide_deletions(image_with(*many(3)), [exact(many(1)[0]), ALL], {}))
    assert not decision.deleted
    assert {type(one) for one in decision.outcomes} == {InvalidRequestError}
    assert "in a single delete operation" in str(decision.outcomes[0])


def test_filters_that_look_at_each_rule_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acl_changes, "ACL_SCANS_PER_REQUEST_MAX", 1)
    image = image_with(*many(2))
    lookups = [exact(one) for one in many(2)]
    assert len(decided(decide_deletions(image, [*lookups, ALL], {})).deleted) == 2
    decision = decided(decide_deletions(image, [ALL, ALL], {}))
    assert not decision.deleted
    assert "At most" in str(decision.outcomes[0])


def test_a_few_rules_are_deleted_by_their_keys_and_many_by_a_removal() -> None:
    ids = ids_for(range(STORE_OPERATIONS_MAX))
    few = deletion_writes(KEYS, ids, UUID(int=7), ())
    assert few.operations == tuple(Delete(KEYS.acl(one)) for one in ids)
    more = [*ids, UUID(int=9999)]
    (write,) = deletion_writes(KEYS, more, UUID(int=7), ()).operations
    assert isinstance(write, Put)
    assert (write.key, read_acl_removal(write.value)) == (
        KEYS.acl_removal(UUID(int=7)),
        tuple(more),
    )


def test_a_sweep_deletes_the_removal_last() -> None:
    ids = tuple(ids_for(range(STORE_OPERATIONS_MAX)))
    image = apply(MetadataImage(), [AclRemovalNoted(UUID(int=7), ids)], 1)
    operations = [one for write in sweep_writes(KEYS, image, ()) for one in write.operations]
    assert operations[-1] == Delete(KEYS.acl_removal(UUID(int=7)))
    assert operations[:-1] == [Delete(KEYS.acl(one)) for one in ids]


# --- Images ---


def test_two_ids_of_one_rule_are_one_rule_until_both_are_deleted() -> None:
    image = image_with(rule(), rule())
    assert image.acl_ids[rule()] == (UUID(int=1), UUID(int=2))
    image = apply(image, [AclsRemoved((UUID(int=1),))], 2)
    assert image.acl_ids[rule()] == (UUID(int=2),)
    image = apply(image, [AclsRemoved((UUID(int=2), UUID(int=3)))], 3)
    assert not image.acl_ids
    assert not image.acls


@given(st.lists(RULES, max_size=6), st.lists(RULES, max_size=6))
def test_a_difference_leads_from_one_image_to_the_other(
    first: list[AclBinding], second: list[AclBinding]
) -> None:
    before = image_with(*first)
    stored = [AclStored(UUID(int=100 + number), one) for number, one in enumerate(second)]
    after = apply(MetadataImage(), [*stored, AclRemovalNoted(UUID(int=7), ())], 2)
    reached = apply(before, difference(before, after), 2)
    assert reached == after
    assert apply(reached, difference(reached, before), 3).acls == before.acls


# --- The service ---


def rules_of(service: MetadataService) -> set[AclBinding]:
    return set(service.image.acls.values())


@pytest.mark.parametrize("fault", [Fault.NONE, Fault.LOST, Fault.ANSWER_LOST, Fault.LATE])
@pytest.mark.parametrize("landed", [0, 1, 2])
def test_creations_and_deletions_survive_lost_answers(fault: Fault, landed: int) -> None:
    wanted = many(2 * STORE_OPERATIONS_MAX + 5)

    async def body(service: MetadataService, store: MemoryMetadataStore) -> None:
        store.faults.extend([Fault.NONE] * landed + [fault])
        assert await create_acls(service, wanted) == [None] * len(wanted)
        assert rules_of(service) == set(wanted)
        assert len(service.image.acls) == len(wanted)
        store.faults.clear()
        store.faults.extend([Fault.NONE] * landed + [fault])
        (found, one) = await delete_acls(service, [ALL, exact(wanted[3])])
        assert set(found) == set(wanted)  # type: ignore[arg-type]
        assert one == (wanted[3],)
        assert not service.image.acls
        store.faults.clear()
        # A write that arrived late may have left a removal of rules that no longer exist.
        await delete_acls(service, [ALL])
        await settled(service, store)
        assert await loaded(store) == service.image
        assert not (await store.read_prefix(f"{KEYS.root}acl")).values

    run(body)


@pytest.mark.parametrize("refused_at", [1, 2, 3])
def test_a_removal_is_in_force_before_its_keys_are_deleted(refused_at: int) -> None:
    """The store fails during the sweep: the rules stay deleted, and a start deletes their keys."""
    store = MemoryMetadataStore()
    wanted = many(2 * STORE_OPERATIONS_MAX + 5)

    async def first(service: MetadataService, store: MemoryMetadataStore) -> None:
        await create_acls(service, wanted)
        store.faults.extend([Fault.NONE] * refused_at + [Fault.REFUSED])
        (found,) = await delete_acls(service, [ALL])
        assert len(found) == len(wanted)  # type: ignore[arg-type]
        assert not service.image.acls
        image = await loaded(store)
        assert (dict(image.acls), dict(image.acl_ids)) == ({}, {})
        assert (await store.read_prefix(f"{KEYS.root}acls/")).values
        # A new rule is not touched by the removal.
        await create_acls(service, [wanted[0]])
        assert rules_of(service) == {wanted[0]}
        await service.stop()

    async def second() -> None:
        async with asyncio.TaskGroup() as tasks:
            service = MetadataService(store)
            await service.start(tasks)
            assert rules_of(service) == {wanted[0]}
            await service.register_broker(BROKER, tasks)
            assert rules_of(service) == {wanted[0]}
            assert len((await store.read_prefix(f"{KEYS.root}acl")).values) == 1
            await service.stop()

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            service = MetadataService(store)
            await service.start(tasks)
            await first(service, store)
        await second()

    asyncio.run(main())


def test_a_deletion_that_the_store_refuses_deletes_nothing() -> None:
    wanted = many(STORE_OPERATIONS_MAX + 1)

    async def body(service: MetadataService, store: MemoryMetadataStore) -> None:
        await create_acls(service, wanted)
        store.faults.append(Fault.REFUSED)
        with pytest.raises(StoreError):
            await delete_acls(service, [ALL])
        assert rules_of(service) == set(wanted)

    run(body)


Step = tuple[str, list[AclBinding]]
STEPS = st.lists(
    st.tuples(st.sampled_from(["create", "delete"]), st.lists(RULES, max_size=4)), max_size=8
)


@settings(max_examples=30)
@given(STEPS, st.lists(st.sampled_from(list(Fault)), max_size=6))
def test_the_followed_image_is_the_loaded_one_and_the_model(
    steps: list[Step], faults: list[Fault]
) -> None:
    model: set[AclBinding] = set()

    async def body(service: MetadataService, store: MemoryMetadataStore) -> None:
        store.faults.extend(faults)
        for kind, rules in steps:
            try:
                if kind == "create":
                    await create_acls(service, rules)
                    model.update(rules)
                else:
                    await delete_acls(service, [exact(one) for one in rules])
                    model.difference_update(rules)
            except StoreError:
                store.faults.clear()
                await settled(service, store)
                model.clear()
                model.update(rules_of(service))
        await settled(service, store)
        assert await loaded(store) == service.image
        assert rules_of(service) == model

    with pytest.MonkeyPatch.context() as patch:
        # Two operations a transaction: most deletions are removals.
        patch.setattr(acl_changes, "STORE_OPERATIONS_MAX", 2)
        run(body)


def test_a_long_decision_lets_other_work_run() -> None:
    turns = 0

    async def body(service: MetadataService, _store: MemoryMetadataStore) -> None:
        is_done = False

        async def count() -> None:
            nonlocal turns
            while not is_done:
                turns += 1
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(count())
            await create_acls(service, [rule("")] * 5_000, random_id=lambda: UUID(int=1))
            is_done = True

    run(body)
    assert turns >= 10
