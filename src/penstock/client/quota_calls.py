"""Calls about quotas as values: plain values in, a `Call` out, as in `client.calls`.

An entity maps a type, `user`, `client-id` or `ip`, to a name; the name None is the default of its
type. An error of the entity that a change names is raised. Nothing is retried here.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from penstock.client.transport.call import Call, raise_error
from penstock.protocol.messages import alter_client_quotas, describe_client_quotas

Entity: TypeAlias = Mapping[str, str | None]

MATCH_EXACT: Final = 0
MATCH_DEFAULT: Final = 1


class EntityQuotas(NamedTuple):
    """The quotas of one entity."""

    entity: dict[str, str | None]
    quotas: dict[str, float]


def change_quotas(entity: Entity, values: Mapping[str, float | None]) -> Call[None]:
    """Set quotas of an entity, all or none; None removes one."""
    request = alter_client_quotas.AlterClientQuotasRequest(
        entries=(
            alter_client_quotas.RequestEntryData(
                entity=tuple(
                    alter_client_quotas.RequestEntityData(entity_type=kind, entity_name=name)
                    for kind, name in entity.items()
                ),
                ops=tuple(
                    alter_client_quotas.OpData(
                        key=key, value=0.0 if value is None else value, remove=value is None
                    )
                    for key, value in values.items()
                ),
            ),
        ),
        validate_only=False,
    )

    def read(answer: alter_client_quotas.AlterClientQuotasResponse) -> None:
        for entry in answer.entries:
            raise_error(entry.error_code, entry.error_message, "quotas")

    return Call(request, alter_client_quotas.AlterClientQuotasResponse, read)


def describe_quotas(filtered: Entity, *, strict: bool = False) -> Call[list[EntityQuotas]]:
    """Return the quotas of entities with these names; `strict`: of entities with no others."""
    request = describe_client_quotas.DescribeClientQuotasRequest(
        components=tuple(
            describe_client_quotas.ComponentData(
                entity_type=kind,
                match_type=MATCH_DEFAULT if name is None else MATCH_EXACT,
                match=name,
            )
            for kind, name in filtered.items()
        ),
        strict=strict,
    )

    def read(answer: describe_client_quotas.DescribeClientQuotasResponse) -> list[EntityQuotas]:
        raise_error(answer.error_code, answer.error_message, "quotas")
        return [
            EntityQuotas(
                {part.entity_type: part.entity_name for part in entry.entity},
                {value.key: value.value for value in entry.values},
            )
            for entry in answer.entries or ()
        ]

    return Call(request, describe_client_quotas.DescribeClientQuotasResponse, read)
