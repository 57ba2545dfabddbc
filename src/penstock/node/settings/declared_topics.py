"""`DeclaredTopics`: creates and changes topics as the settings file declares them.

Guarantees: topics are created, extended and configured as `cluster.declared_topics` plans, by the
same code that serves clients. A failure is logged, reported in `problems` and retried at the next
reconciliation, and no other work waits for it. It never deletes a topic.
"""

import logging
from collections.abc import Mapping, Sequence

from penstock.cluster.configs.setting_changes import SettingsChange
from penstock.cluster.declaration_memory import DeclarationMemory
from penstock.cluster.declared_topics import (
    ExistingTopic,
    TopicsPlan,
    plan_lines,
    plan_topics,
)
from penstock.cluster.service import MetadataService
from penstock.cluster.values import SetByFile
from penstock.core.errors import PenstockError
from penstock.core.settings.topic_declarations import TopicDeclaration
from penstock.node.administration.topic_administration import Topics

logger = logging.getLogger(__name__)


class DeclaredTopics:
    """The topics of a settings file on this broker."""

    def __init__(
        self, metadata: MetadataService, topics: Topics, memory: DeclarationMemory
    ) -> None:
        self._metadata = metadata
        self._topics = topics
        self._memory = memory
        self.problems: tuple[str, ...] = ()
        """Declarations that the last reconciliation could not carry out."""

    async def reconcile(self, declared: Sequence[TopicDeclaration]) -> None:
        """Create and change topics as they are declared, as far as possible."""
        try:
            problems = await self._reconciled(declared)
        except PenstockError as error:
            problems = [f"declared topics could not be looked after: {error}"]
        self.problems = tuple(problems)
        for problem in problems:
            logger.error("%s", problem)

    async def _reconciled(self, declared: Sequence[TopicDeclaration]) -> list[str]:
        before = await self._memory.recall()
        if not declared and not before:
            return []
        plan = plan_topics(declared, self._existing(declared), before)
        for line in plan_lines(plan):
            logger.info("declared topics: %s", line)
        await self._note_ahead(declared, plan, before)
        failures = await self._carry_out(plan)
        await self._note_after(declared, await self._memory.recall(), failures)
        return [*plan.problems, *failures.values()]

    async def _carry_out(self, plan: TopicsPlan) -> dict[str, str]:
        """Carry out the plan; return the errors by topic name."""
        topics = self._topics
        asked: list[tuple[str, object]] = [
            *zip(
                (one.name for one in plan.creations),
                await topics.create(plan.creations, validate_only=False),
                strict=True,
            ),
            *zip(
                (one.name for one in plan.growths),
                await topics.add_partitions(plan.growths, validate_only=False),
                strict=True,
            ),
            *zip(
                (one.name for one in plan.changes),
                await topics.change_settings(plan.changes, validate_only=False),
                strict=True,
            ),
        ]
        return {
            name: f"the declared topic {name!r} could not be created or changed: {outcome}"
            for name, outcome in asked
            if isinstance(outcome, PenstockError)
        }

    def _existing(self, declared: Sequence[TopicDeclaration]) -> dict[str, ExistingTopic]:
        image = self._metadata.image
        return {
            one.name: ExistingTopic(topic.id, len(topic.partitions), topic.settings)
            for one in declared
            if (topic := image.topic(one.name)) is not None
        }

    # --- The file's own settings ---

    async def _note_ahead(
        self,
        declared: Sequence[TopicDeclaration],
        plan: TopicsPlan,
        before: dict[str, SetByFile],
    ) -> None:
        """Note, before a change, the settings that the file may own, old and new."""
        changes: dict[str, SettingsChange] = {change.name: change for change in plan.changes}
        ahead: dict[str, SetByFile | None] = {}
        for one in declared:
            topic = self._metadata.image.topic(one.name)
            if one.name in changes and topic is not None:
                known = before.get(one.name)
                if known is None or known.topic_id != topic.id:
                    known = SetByFile(topic.id, {})
                ahead[one.name] = SetByFile(
                    topic.id,
                    {**known.settings, **one.settings},
                    {name: old for name, old in topic.settings.items() if known.gave(name, old)},
                )
        await self._memory.keep(ahead)

    async def _note_after(
        self,
        declared: Sequence[TopicDeclaration],
        known: dict[str, SetByFile],
        failures: Mapping[str, str],
    ) -> None:
        """Note, after a change, exactly the file's settings; delete the notes of undeclared topics.

        If a change failed, the earlier note stays.
        """
        wanted: dict[str, SetByFile | None] = dict.fromkeys(known.keys() - failures.keys())
        for one in declared:
            topic = self._metadata.image.topic(one.name)
            if topic is not None and one.settings and one.name not in failures:
                wanted[one.name] = SetByFile(topic.id, one.settings)
        await self._memory.keep(
            {name: given for name, given in wanted.items() if known.get(name) != given}
        )
