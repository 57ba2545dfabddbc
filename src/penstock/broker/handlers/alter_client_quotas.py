"""AlterClientQuotas: quotas of single entities are set and removed; they are in force at once."""

from penstock.broker.context import RequestContext
from penstock.broker.denials import CLUSTER_DENIED
from penstock.broker.error_mapping import outcome_of
from penstock.broker.pacing.slices import map_in_slices
from penstock.cluster.quota_changes import QuotaChange
from penstock.cluster.quota_entities import QuotaEntity, entity_of
from penstock.core.errors import InvalidRequestError, PenstockError
from penstock.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    RequestEntryData,
    ResponseEntityData,
    ResponseEntryData,
)
from penstock.security.acls.values import Operation


async def handle(
    request: AlterClientQuotasRequest, context: RequestContext
) -> AlterClientQuotasResponse:
    """Each entity changes whole or is refused by itself; one that is named twice is refused."""
    services = context.services
    if not context.allows_cluster(Operation.ALTER_CONFIGS):
        denied = await map_in_slices(_denied, request.entries, services.turns, services.clock)
        return AlterClientQuotasResponse(entries=tuple(denied))
    asked = await map_in_slices(_change, request.entries, services.turns, services.clock)
    times: dict[object, int] = {}
    for change in asked:
        times[change.entity] = times.get(change.entity, 0) + 1
    once = [change for change in asked if times[change.entity] == 1]
    outcomes: dict[object, PenstockError | None] = {
        change.entity: InvalidRequestError(
            f"Ignoring duplicate entity {change.entity.kafka_text()}"
        )
        for change in asked
        if times[change.entity] > 1
    }
    changed = await services.quota_administration.change(once, validate_only=request.validate_only)
    outcomes.update(zip((change.entity for change in once), changed, strict=True))
    entities = tuple({change.entity: outcomes[change.entity] for change in asked}.items())
    entries = await map_in_slices(_entry, entities, services.turns, services.clock)
    return AlterClientQuotasResponse(entries=tuple(entries))


def _denied(entry: RequestEntryData) -> ResponseEntryData:
    return ResponseEntryData(
        error_code=CLUSTER_DENIED.code,
        error_message=CLUSTER_DENIED.message,
        entity=tuple(
            ResponseEntityData(entity_type=part.entity_type, entity_name=part.entity_name)
            for part in entry.entity
        ),
    )


def _entry(answered: tuple[QuotaEntity, PenstockError | None]) -> ResponseEntryData:
    entity, error = answered
    outcome = outcome_of(error)
    return ResponseEntryData(
        error_code=outcome.code,
        error_message=outcome.message,
        entity=tuple(
            ResponseEntityData(entity_type=kind, entity_name=name) for kind, name in entity.parts
        ),
    )


def _change(entry: RequestEntryData) -> QuotaChange:
    return QuotaChange(
        entity_of((part.entity_type, part.entity_name) for part in entry.entity),
        tuple((op.key, None if op.remove else op.value) for op in entry.ops),
    )
