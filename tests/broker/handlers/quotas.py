"""Setting and reading quotas over a connection, for the tests that need some."""

import time
from collections.abc import Mapping

from penstock.protocol.messages import alter_client_quotas, describe_client_quotas
from penstock.protocol.messages.alter_client_quotas import (
    AlterClientQuotasResponse,
    OpData,
    RequestEntityData,
    RequestEntryData,
    ResponseEntryData,
)
from penstock.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasResponse,
)
from tests.broker.handlers.asker import Asker

Entity = Mapping[str, str | None]
EXACT, DEFAULT, SPECIFIED = range(3)
KAFKA_SECONDS = 0.3


def entry_of(entity: Entity, quotas: Mapping[str, float | None]) -> RequestEntryData:
    """What one entity is to have; None removes a quota."""
    return RequestEntryData(
        entity=tuple(
            RequestEntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()
        ),
        ops=tuple(
            OpData(key=key, value=value or 0.0, remove=value is None)
            for key, value in quotas.items()
        ),
    )


def alter(
    asker: Asker, *entries: RequestEntryData, validate_only: bool = False
) -> list[ResponseEntryData]:
    """Change quotas of several entities; one result each."""
    request = alter_client_quotas.AlterClientQuotasRequest(
        entries=entries, validate_only=validate_only
    )
    return list(asker.ask(request, 1, AlterClientQuotasResponse).entries)


def set_quotas(asker: Asker, entity: Entity, **quotas: float | None) -> None:
    """Give one entity quotas, and wait until they are in force."""
    (result,) = alter(asker, entry_of(entity, quotas))
    assert not result.error_code, result
    wanted = {key: value for key, value in quotas.items() if value is not None}
    # Kafka answers before its broker has heard of it, and describes it before it acts on it.
    asker.until(lambda: described(asker, entity).get(frozenset(entity.items()), {}) == wanted)
    if asker.is_kafka:
        time.sleep(KAFKA_SECONDS)


def describe(
    asker: Asker, *parts: tuple[str, int, str | None], strict: bool = False
) -> DescribeClientQuotasResponse:
    """The quotas that a filter means."""
    request = describe_client_quotas.DescribeClientQuotasRequest(
        components=tuple(
            ComponentData(entity_type=kind, match_type=match, match=name)
            for kind, match, name in parts
        ),
        strict=strict,
    )
    return asker.ask(request, 1, DescribeClientQuotasResponse)


def described(
    asker: Asker, entity: Entity
) -> dict[frozenset[tuple[str, str | None]], dict[str, float]]:
    """The quotas of exactly this entity."""
    parts = [(kind, DEFAULT if name is None else EXACT, name) for kind, name in entity.items()]
    answer = describe(asker, *parts, strict=True)
    assert not answer.error_code, answer
    return {
        frozenset((part.entity_type, part.entity_name) for part in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in answer.entries or ()
    }
