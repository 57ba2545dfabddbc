"""Plans the changes for the `[[topics]]` of a settings file. Pure.

The input is declarations and existing topics, the output a plan. Guarantees of a plan:

- it never deletes a topic and never removes partitions; impossible changes are problems in it;
- it removes a setting only when the file set it before, to the value that it still has, and the
  topic is the same one: settings from elsewhere stay, even if they are set after the plan was
  created, because value and topic are checked again at the moment of the change;
- after it was carried out, the next plan is empty.

A topic that the file no longer names is not changed, including its settings. `declared_topics`
carries out a plan, and `declaration_memory` stores the notes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from penstock.cluster.configs.setting_changes import EditKind, SettingEdit, SettingsChange
from penstock.cluster.configs.topic_configs import parse_topic_settings
from penstock.cluster.controller import NewTopic
from penstock.cluster.topic_changes import MorePartitions
from penstock.cluster.topic_rules import DEFAULT, check_creatable_name
from penstock.cluster.values import SetByFile
from penstock.core.errors import PenstockError
from penstock.core.settings.topic_declarations import TopicDeclaration
from penstock.core.types import INTERNAL_TOPICS


class ExistingTopic(NamedTuple):
    """The present state of a topic."""

    id: UUID
    partition_count: int
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TopicsPlan:
    """The changes, in this order."""

    creations: tuple[NewTopic, ...] = ()
    growths: tuple[MorePartitions, ...] = ()
    changes: tuple[SettingsChange, ...] = ()
    problems: tuple[str, ...] = ()
    """Declarations that cannot be carried out."""

    @property
    def is_empty(self) -> bool:
        """Return whether there are no changes; there may still be problems."""
        return not (self.creations or self.growths or self.changes)


def check_declaration(declared: TopicDeclaration) -> Iterator[str]:
    """Yield violations of Kafka's rules in a declaration, independent of existing topics."""
    try:
        if declared.name in INTERNAL_TOPICS:
            yield f"{declared.name} is the broker's own topic and cannot be declared."
        check_creatable_name(declared.name)
    except PenstockError as error:
        yield str(error)
    for name, value in declared.settings.items():
        try:
            parse_topic_settings({name: value})
        except PenstockError as error:
            yield f"topic {declared.name!r}: {error}"
            return
    try:
        parse_topic_settings(declared.settings)
    except PenstockError as error:
        yield f"topic {declared.name!r}: {error}"


def plan_topics(
    declared: Sequence[TopicDeclaration],
    existing: Mapping[str, ExistingTopic],
    set_before: Mapping[str, SetByFile],
) -> TopicsPlan:
    """Return the plan that creates and changes topics as declared."""
    creations: list[NewTopic] = []
    growths: list[MorePartitions] = []
    changes: list[SettingsChange] = []
    problems: list[str] = []
    for one in declared:
        topic = existing.get(one.name)
        if topic is None:
            creations.append(
                NewTopic(
                    name=one.name,
                    partition_count=one.partitions or DEFAULT,
                    settings=dict(one.settings),
                )
            )
            continue
        if one.partitions is not None and one.partitions > topic.partition_count:
            growths.append(MorePartitions(one.name, one.partitions))
        elif one.partitions is not None and one.partitions < topic.partition_count:
            problems.append(
                f"{one.source}: the topic {one.name!r} has {topic.partition_count} partitions and "
                f"{one.partitions} are declared: partitions cannot be taken away. Declare "
                f"{topic.partition_count}, or make another topic and move the records."
            )
        edits = tuple(_edits(one, topic, set_before.get(one.name)))
        if edits:
            changes.append(SettingsChange(one.name, edits, topic_id=topic.id))
    return TopicsPlan(tuple(creations), tuple(growths), tuple(changes), tuple(problems))


def _edits(
    declared: TopicDeclaration, topic: ExistingTopic, before: SetByFile | None
) -> Iterator[SettingEdit]:
    for name, value in declared.settings.items():
        if topic.settings.get(name) != value:
            yield SettingEdit(name, EditKind.SET, value)
    if before is None or before.topic_id != topic.id:
        return
    for name, value in topic.settings.items():
        if name not in declared.settings and before.gave(name, value):
            yield SettingEdit(name, EditKind.DELETE, expected=value)


def plan_lines(plan: TopicsPlan) -> Iterator[str]:
    """Yield a log line for each change."""
    for creation in plan.creations:
        count = creation.partition_count
        partitions = "the default number of" if count == DEFAULT else str(count)
        settings = "".join(f", {name}={value}" for name, value in creation.settings.items())
        yield f"create topic {creation.name} with {partitions} partitions{settings}"
    for growth in plan.growths:
        yield f"grow topic {growth.name} to {growth.count} partitions"
    for change in plan.changes:
        for edit in change.edits:
            if edit.kind is EditKind.DELETE:
                yield f"topic {change.name}: take back {edit.name}, which is no longer declared"
            else:
                yield f"topic {change.name}: set {edit.name}={edit.value}"
