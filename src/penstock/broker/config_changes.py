"""Code that AlterConfigs and IncrementalAlterConfigs share: which resource may change, and how.

Topics, groups, this broker and all brokers can be changed. Settings of client metrics cannot: they
are refused by name, because an accepted setting must have an effect.
Checks come in Kafka's order, with Kafka's codes and words where Kafka refuses too: first the form
of the request, then the permission, then the values. Deleting a setting that was never set changes
nothing and succeeds, as in Kafka.

Settings of a topic need a permission on the topic, those of a group on the group, and all others on
the cluster (`denied_access`); DescribeConfigs uses the same rule.
"""

from collections import Counter
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple, Protocol

from penstock.broker.context import RequestContext
from penstock.broker.denials import CLUSTER_DENIED, GROUP_DENIED, TOPIC_DENIED
from penstock.broker.error_mapping import Outcome, outcome_of
from penstock.broker.pacing.slices import NextTurn
from penstock.cluster.configs.setting_changes import EditKind, SettingEdit, SettingsChange
from penstock.core.errors import InvalidRequestError, InvalidTopicConfigError, PenstockError
from penstock.security.acls import values as acls


class ResourceType(IntEnum):
    """Resources that may have settings, with Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


RESOURCE_TYPES: Final = frozenset(map(int, ResourceType))
_CHANGEABLE: Final = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.BROKER)
_SHOWN_CHARACTERS_MAX: Final = 249
"""Of a client's text that an error message repeats; Kafka's bound on names."""


class Edit(NamedTuple):
    """One setting as a request has it."""

    name: str
    operation: int
    value: str | None


class AskedChange(NamedTuple):
    """One resource as a request has it."""

    resource_type: int
    resource_name: str
    edits: tuple[Edit, ...]
    replaces_all: bool
    """AlterConfigs: settings that are not named go back to their defaults."""


class _Owner(Protocol):
    """The owner of the settings of one kind of resource."""

    async def change_settings(
        self, changes: Sequence[SettingsChange], *, validate_only: bool
    ) -> list[PenstockError | None]: ...


def denied_access(
    resource_type: int, name: str, operation: acls.Operation, context: RequestContext
) -> Outcome | None:
    """The error for a client that may not do this to the settings of a resource, else None."""
    match resource_type:
        case ResourceType.TOPIC:
            is_allowed = context.allows(operation, acls.ResourceType.TOPIC, name)
            denied = TOPIC_DENIED
        case ResourceType.GROUP:
            is_allowed = context.allows(operation, acls.ResourceType.GROUP, name)
            denied = GROUP_DENIED
        case _:
            is_allowed = context.allows_cluster(operation)
            denied = CLUSTER_DENIED
    return None if is_allowed else denied


async def change_configs(
    context: RequestContext, asked: Sequence[AskedChange], *, validate_only: bool
) -> list[Outcome]:
    """Return one outcome for each resource, in the order asked."""
    times = Counter((one.resource_type, one.resource_name) for one in asked)
    outcomes: list[Outcome] = []
    changes: dict[int, dict[int, SettingsChange]] = {kind: {} for kind in _CHANGEABLE}
    turn = NextTurn(context.services.turns, context.services.clock)
    for place, one in enumerate(asked):
        await turn.wait_if_due()
        outcome = outcome_of(None)
        try:
            if times[one.resource_type, one.resource_name] > 1:
                raise InvalidRequestError("Each resource must appear at most once.")
            _check_edits(one)
            change = _checked(one, context)
            if isinstance(change, Outcome):
                outcome = change
            elif change is not None:
                changes[one.resource_type][place] = change
        except PenstockError as error:
            outcome = outcome_of(error)
        outcomes.append(outcome)
    services = context.services
    owners: dict[int, _Owner] = {
        ResourceType.TOPIC: services.topics,
        ResourceType.GROUP: services.groups,
        ResourceType.BROKER: services.brokers,
    }
    for kind, owner in owners.items():
        if changes[kind]:
            changed = await owner.change_settings(
                tuple(changes[kind].values()), validate_only=validate_only
            )
            for place, refusal in zip(changes[kind], changed, strict=True):
                outcomes[place] = outcome_of(refusal)
    return outcomes


def _check_edits(asked: AskedChange) -> None:
    if len({edit.name for edit in asked.edits}) < len(asked.edits):
        raise InvalidRequestError("Error due to duplicate config keys")
    empty = [
        edit.name
        for edit in asked.edits
        if edit.value is None and edit.operation != EditKind.DELETE
    ]
    if empty:
        raise InvalidRequestError(f"Null value not supported for : {', '.join(empty)}")


def _checked(asked: AskedChange, context: RequestContext) -> SettingsChange | Outcome | None:
    """The change to apply, None for nothing, or a denial; raises for a change that is refused."""
    kind, name = asked.resource_type, asked.resource_name
    _check_resource(asked, context)
    denied = denied_access(kind, name, acls.Operation.ALTER_CONFIGS, context)
    if denied is not None:
        return denied
    match kind:
        case ResourceType.TOPIC | ResourceType.GROUP | ResourceType.BROKER:
            if kind == ResourceType.BROKER and name:
                name = str(context.services.node_id)
            edits = tuple(map(_setting_edit, asked.edits))
            return SettingsChange(name, edits, asked.replaces_all)
        case ResourceType.BROKER_LOGGER:
            _check_node_id(name, context)
            if asked.edits:
                raise InvalidTopicConfigError(f"Logger {_shown(asked.edits[0])} does not exist!")
        case ResourceType.CLIENT_METRICS:
            _refuse_client_metrics(asked)
    return None


def _check_resource(asked: AskedChange, context: RequestContext) -> None:
    """Raise for a resource that Kafka refuses before it checks the permission."""
    kind = asked.resource_type
    is_logger = kind == ResourceType.BROKER_LOGGER
    if (is_logger and asked.replaces_all) or kind not in RESOURCE_TYPES:
        raise InvalidRequestError(f"Unknown resource type {kind}")
    if kind == ResourceType.BROKER:
        if asked.resource_name:
            _check_node_id(asked.resource_name, context)
        for edit in asked.edits:
            _kind(edit)


def _setting_edit(edit: Edit) -> SettingEdit:
    return SettingEdit(edit.name, _kind(edit), edit.value or "")


def _kind(edit: Edit) -> EditKind:
    try:
        return EditKind(edit.operation)
    except ValueError:
        raise InvalidRequestError(f"Unknown operations type {edit.operation}") from None


def _check_node_id(name: str, context: RequestContext) -> None:
    try:
        node_id = int(name)
    except ValueError:
        raise InvalidRequestError(
            f"Node id must be an integer, but it is: {name[:_SHOWN_CHARACTERS_MAX]}"
        ) from None
    if node_id != context.services.node_id:
        raise InvalidRequestError(
            f"Unexpected broker id, expected {context.services.node_id}, but received {node_id}"
        )


def _refuse_client_metrics(asked: AskedChange) -> None:
    if not asked.resource_name:
        raise InvalidRequestError("Subscription name can't be empty")
    for edit in asked.edits:
        if _kind(edit) is not EditKind.DELETE:
            raise InvalidRequestError(
                f"Unknown client metrics configuration: {_shown(edit)}: Penstock collects none"
            )


def _shown(edit: Edit) -> str:
    return edit.name[:_SHOWN_CHARACTERS_MAX]
