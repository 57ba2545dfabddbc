"""Declared topics are carried out while clients change the same topics, and over failures."""

from collections.abc import Awaitable, Callable, Mapping

import pytest

from penstock.cluster.controller import NewTopic
from penstock.cluster.declaration_memory import DeclarationMemory
from penstock.cluster.values import SetByFile
from penstock.core.errors import StoreError
from penstock.core.settings.topic_declarations import TopicDeclaration
from penstock.node.administration.topic_administration import Topics
from penstock.node.settings.declared_topics import DeclaredTopics
from penstock.replication.manager import ReplicaManager
from tests.node.test_topic_changes import run, setting

Meanwhile = Callable[[], Awaitable[object]]


class Memory(DeclarationMemory):
    """Runs a callback right after the plan has been recorded."""

    meanwhile: Meanwhile | None = None

    async def keep(self, told: Mapping[str, SetByFile | None]) -> None:
        await super().keep(told)
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()


class Rig:
    """The topic `t`, its declaration in a file, and other clients that change it."""

    def __init__(self, topics: Topics) -> None:
        self.topics = topics
        self.metadata = topics._metadata
        self.memory = Memory(self.metadata._store)
        self.declared = DeclaredTopics(self.metadata, topics, self.memory)

    async def reconcile(self, **settings: str) -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        await self.declared.reconcile([TopicDeclaration("t", None, named, "p.toml line 1")])

    @property
    def settings(self) -> Mapping[str, str]:
        return self.metadata.image.topics["t"].settings


def reconciling(scenario: Callable[[Rig], Awaitable[None]]) -> None:
    async def body(topics: Topics, _replicas: ReplicaManager) -> None:
        await scenario(Rig(topics))

    run(body)


def test_what_a_client_sets_after_the_plan_was_made_is_not_taken_back() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.reconcile(retention_ms="5")
        theirs = setting("retention.ms", "9")
        rig.memory.meanwhile = lambda: rig.topics.change_settings([theirs], validate_only=False)
        await rig.reconcile(segment_ms="7")
        assert rig.settings == {"retention.ms": "9", "segment.ms": "7"}
        assert not rig.declared.problems
        await rig.reconcile(segment_ms="7")
        assert rig.settings == {"retention.ms": "9", "segment.ms": "7"}

    reconciling(scenario)


def test_a_topic_that_was_made_again_after_the_plan_is_not_changed_by_it() -> None:
    async def scenario(rig: Rig) -> None:
        async def made_again() -> None:
            await rig.topics.delete([rig.metadata.image.topics["t"].id])
            again = NewTopic(name="t", settings={"retention.ms": "5"})
            await rig.topics.create([again], validate_only=False)

        await rig.reconcile(retention_ms="5")
        rig.memory.meanwhile = made_again
        await rig.reconcile()
        assert rig.settings == {"retention.ms": "5"}
        (problem,) = rig.declared.problems
        assert "deleted and created again" in problem
        await rig.reconcile()
        assert rig.settings == {"retention.ms": "5"}
        assert not rig.declared.problems

    reconciling(scenario)


@pytest.mark.parametrize("tries", [1, 2])
def test_what_the_file_set_is_taken_back_though_later_values_never_arrived(tries: int) -> None:
    async def scenario(rig: Rig) -> None:
        async def fails() -> None:
            raise StoreError("no answer")

        await rig.reconcile(retention_ms="5")
        for number in range(tries):
            rig.memory.meanwhile = fails
            await rig.reconcile(retention_ms=str(6 + number))
            assert rig.declared.problems
        assert rig.settings == {"retention.ms": "5"}
        await rig.reconcile()
        assert rig.settings == {}
        assert not rig.declared.problems

    reconciling(scenario)


def test_what_a_client_set_stays_though_the_file_had_wanted_another_value() -> None:
    async def scenario(rig: Rig) -> None:
        async def fails() -> None:
            raise StoreError("no answer")

        await rig.topics.change_settings([setting("retention.ms", "9")], validate_only=False)
        rig.memory.meanwhile = fails
        await rig.reconcile(retention_ms="5")
        await rig.reconcile()
        assert rig.settings == {"retention.ms": "9"}

    reconciling(scenario)
