"""Code that AlterConfigs and IncrementalAlterConfigs share: which resource may change, and how.

Topics, groups, this broker and all brokers can be changed. Settings of client metrics cannot: they
are refused by name, because an accepted setting must have an effect.
Checks come in Kafka's order, with Kafka's codes and words where Kafka refuses too. Deleting a
setting that was never set changes nothing and succeeds, as in Kafka.
"""

from collections import Counter
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple, Protocol

from penstock.broker.context import RequestContext
from penstock.broker.pacing.slices import NextTurn
from penstock.cluster.configs.setting_changes import EditKind, SettingEdit, SettingsChange
from penstock.core.errors import InvalidRequestError, InvalidTopicConfigError, PenstockError


class ResourceType(IntEnum):
    """Resources that may have settings, with Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


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


async def change_configs(
    context: RequestContext, asked: Sequence[AskedChange], *, validate_only: bool
) -> list[PenstockError | None]:
    """One outcome for each resource, in the order asked; None is success."""
    times = Counter((one.resource_type, one.resource_name) for one in asked)
    outcomes: list[PenstockError | None] = []
    changes: dict[int, dict[int, SettingsChange]] = {kind: {} for kind in _CHANGEABLE}
    turn = NextTurn(context.services.turns, context.services.clock)
    for place, one in enumerate(asked):
        await turn.wait_if_due()
        refusal: PenstockError | None = None
        try:
            if times[one.resource_type, one.resource_name] > 1:
                raise InvalidRequestError("Each resource must appear at most once.")
            _check_edits(one)
            change = _checked(one, context)
            if change is not None:
                changes[one.resource_type][place] = change
        except PenstockError as error:
            refusal = error
        outcomes.append(refusal)
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
            for place, outcome in zip(changes[kind], changed, strict=True):
                outcomes[place] = outcome
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


def _checked(asked: AskedChange, context: RequestContext) -> SettingsChange | None:
    """The change to apply, None for nothing; raises for a change that is refused."""
    match asked.resource_type:
        case ResourceType.TOPIC | ResourceType.GROUP | ResourceType.BROKER as kind:
            name = asked.resource_name
            if kind == ResourceType.BROKER and name:
                _check_node_id(name, context)
                name = str(context.services.node_id)
            edits = tuple(map(_setting_edit, asked.edits))
            return SettingsChange(name, edits, asked.replaces_all)
        case ResourceType.BROKER_LOGGER if not asked.replaces_all:
            _check_node_id(asked.resource_name, context)
            if asked.edits:
                raise InvalidTopicConfigError(f"Logger {_shown(asked.edits[0])} does not exist!")
        case ResourceType.CLIENT_METRICS:
            _refuse_client_metrics(asked)
        case _:
            raise InvalidRequestError(f"Unknown resource type {asked.resource_type}")
    return None


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
