"""AlterClientQuotas: quotas of single entities are set and removed; they are in force at once."""

from penstock.broker.context import RequestContext
from penstock.broker.error_mapping import code_of, message_of
from penstock.cluster.quota_changes import QuotaChange
from penstock.cluster.quota_entities import entity_of
from penstock.core.errors import InvalidRequestError, PenstockError
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    RequestEntryData,
    ResponseEntityData,
    ResponseEntryData,
)


async def handle(
    request: AlterClientQuotasRequest, context: RequestContext
) -> AlterClientQuotasResponse:
    """Each entity changes whole or is refused by itself; one that is named twice is refused."""
    asked = [_change(entry) for entry in request.entries]
    times: dict[object, int] = {}
    for change in asked:
        times[change.entity] = times.get(change.entity, 0) + 1
    once = [change for change in asked if times[change.entity] == 1]
    outcomes: dict[object, PenstockError | None] = {
        change.entity: InvalidRequestError(f"Ignoring duplicate entity {change.entity.told()}")
        for change in asked
    }
    changed = await context.services.quota_administration.change(
        once, validate_only=request.validate_only
    )
    outcomes.update(zip((change.entity for change in once), changed, strict=True))
    entities = {change.entity: None for change in asked}
    return AlterClientQuotasResponse(
        entries=tuple(
            ResponseEntryData(
                error_code=ErrorCode.NONE
                if (error := outcomes[entity]) is None
                else code_of(error),
                error_message=None if error is None else message_of(error),
                entity=tuple(
                    ResponseEntityData(entity_type=kind, entity_name=name)
                    for kind, name in entity.parts
                ),
            )
            for entity in entities
        )
    )


def _change(entry: RequestEntryData) -> QuotaChange:
    return QuotaChange(
        entity_of((part.entity_type, part.entity_name) for part in entry.entity),
        tuple((op.key, None if op.remove else op.value) for op in entry.ops),
    )
