"""`AclChanges`: the authorizer has the rules of the newest image, and a file's rules stay."""

import asyncio
from uuid import UUID

from penstock.broker.ports import AclDeletion
from penstock.cluster.access.security_service import create_acls, delete_acls
from penstock.cluster.keys import Keys
from penstock.cluster.service import MetadataService
from penstock.cluster.stores.port import Delete, Put
from penstock.cluster.values import write_acl
from penstock.core.errors import PolicyViolationError
from penstock.node.administration.acl_administration import AclChanges
from penstock.security.acls.authorizer import AclAuthorizer, RuleOrigin
from penstock.security.acls.filters import AclFilter
from penstock.security.acls.values import (
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from penstock.security.principal import user
from penstock.testing.memory_store import MemoryMetadataStore
from tests.cluster.test_service import run, settled

KEYS = Keys()
ALL = AclFilter()


def rule(name: str, permission: Permission = Permission.ALLOW) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC,
        name,
        PatternType.LITERAL,
        "User:alice",
        "*",
        Operation.READ,
        permission,
    )


def may_read(authorizer: AclAuthorizer, topic: str) -> bool:
    return authorizer.allows(user("alice"), "10.0.0.1", Operation.READ, ResourceType.TOPIC, topic)


def test_a_rule_is_in_force_when_its_creation_returns() -> None:
    async def body(service: MetadataService, _store: MemoryMetadataStore) -> None:
        authorizer = AclAuthorizer()
        acls = AclChanges(service, authorizer)
        assert not may_read(authorizer, "t")
        assert await acls.create([rule("t")]) == [None]
        assert may_read(authorizer, "t")
        assert await acls.create([rule("t", Permission.DENY)]) == [None]
        assert not may_read(authorizer, "t")
        assert set(acls.rules()) == {rule("t"), rule("t", Permission.DENY)}
        deny = AclFilter(permission=Permission.DENY)
        (found,) = await acls.delete([deny])
        assert found == (AclDeletion(rule("t", Permission.DENY), None),)
        assert may_read(authorizer, "t")
        await acls.delete([ALL])
        assert not may_read(authorizer, "t")
        assert not authorizer.rules(RuleOrigin.API)

    run(body)


def test_existing_rules_and_those_of_another_broker_are_followed() -> None:
    async def main() -> None:
        store = MemoryMetadataStore()
        async with asyncio.TaskGroup() as tasks:
            first, second = MetadataService(store), MetadataService(store)
            await first.start(tasks)
            await create_acls(first, [rule("old")])
            await second.start(tasks)
            authorizer = AclAuthorizer()
            AclChanges(second, authorizer)
            assert may_read(authorizer, "old")
            await create_acls(first, [rule("new")])
            await settled(second, store)
            assert may_read(authorizer, "new")
            await delete_acls(first, [ALL])
            await settled(second, store)
            assert not may_read(authorizer, "old")
            assert not may_read(authorizer, "new")
            await first.stop()
            await second.stop()

    asyncio.run(main())


def test_of_two_equal_rules_one_stays_in_force() -> None:
    """Two brokers may create the same rule at the same time, with two ids."""

    async def body(service: MetadataService, store: MemoryMetadataStore) -> None:
        authorizer = AclAuthorizer()
        acls = AclChanges(service, authorizer)
        keys = [KEYS.acl(UUID(int=number)) for number in (1, 2)]
        await store.transact([], [Put(key, write_acl(rule("t"))) for key in keys])
        await settled(service, store)
        assert acls.rules() == [rule("t")]
        await store.transact([], [Delete(keys[0])])
        await settled(service, store)
        assert may_read(authorizer, "t")
        assert await acls.create([rule("t")]) == [None]
        (found,) = await acls.delete([ALL])
        assert found == (AclDeletion(rule("t"), None),)
        assert not may_read(authorizer, "t")

    run(body)


def test_rules_of_a_file_are_listed_and_kept() -> None:
    async def body(service: MetadataService, _store: MemoryMetadataStore) -> None:
        fixed = {rule("fixed"), rule("both")}
        acls = AclChanges(
            service, AclAuthorizer(), file_rules=lambda: fixed, file_name="rules.json"
        )
        await acls.create([rule("both"), rule("stored")])
        assert sorted(acls.rules()) == sorted({*fixed, rule("stored")})
        exact = AclFilter(*rule("fixed"))
        everything, one, wrong = await acls.delete(
            [ALL, exact, AclFilter(operation=Operation.UNKNOWN)]
        )
        assert isinstance(everything, tuple)
        assert isinstance(one, tuple)
        assert {found.acl for found in everything if found.problem is None} == {
            rule("both"),
            rule("stored"),
        }
        kept = [found for found in everything if found.problem is not None]
        assert {found.acl for found in kept} == fixed
        assert isinstance(kept[0].problem, PolicyViolationError)
        assert "rules.json" in str(kept[0].problem)
        assert [found.acl for found in one] == [rule("fixed")]
        assert str(wrong) == "Unknown entryFilter."
        assert set(acls.rules()) == fixed

    run(body)
