"""Quota entities and quota types, by Kafka's names. Pure.

An entity names a user, a client id, both, or an address. A name of None is the default of its type:
it applies to all names of that type without their own quota. Entities compare by value, and their
types always have the same order, so each entity has one spelling.

It does NOT know which of several entities applies to a client: `broker.quotas.limit_table` decides.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)
"""In the order of an entity's types."""

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"


class QuotaEntity(NamedTuple):
    """The entity that a quota is for."""

    parts: tuple[tuple[str, str | None], ...]
    """Type and name, in the order of `ENTITY_TYPES`; a name of None is the default."""

    def name(self, entity_type: str) -> str | None:
        """Return the name of this type; "" if the entity has none, None for the default."""
        for known, name in self.parts:
            if known == entity_type:
                return name
        return ""

    def has(self, entity_type: str) -> bool:
        """Return whether the entity has this type, by name or by default."""
        return any(known == entity_type for known, _ in self.parts)

    def text(self) -> str:
        """Return the text for a store key: `user=alice,client-id`; a type alone is its default."""
        return ",".join(
            kind if name is None else f"{kind}={quote(name, safe='')}" for kind, name in self.parts
        )

    def kafka_text(self) -> str:
        """Return the text that Kafka writes in messages."""
        names = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in self.parts)
        return f"ClientQuotaEntity(entries={{{names}}})"


def entity_of(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """Return the entity with these names; the last mention of a type counts, as in Kafka."""
    names = dict(parts)
    known = [(kind, names.pop(kind)) for kind in ENTITY_TYPES if kind in names]
    return QuotaEntity((*known, *names.items()))


def entity_of_text(text: str) -> QuotaEntity:
    """Return the entity that `QuotaEntity.text` wrote."""
    parts: list[tuple[str, str | None]] = []
    for part in text.split(","):
        kind, equals, name = part.partition("=")
        parts.append((kind, unquote(name) if equals else None))
    return entity_of(parts)


class ValueType(Enum):
    """The type of a quota's value."""

    INT = 2**31 - 1
    LONG = 2**63
    """Kafka compares with its largest long as a floating point number."""
    DOUBLE = 0


@dataclass(frozen=True, slots=True)
class QuotaKey:
    """One kind of quota."""

    name: str
    type: ValueType
    unit: str


_CLIENT_KEYS: Final = (
    QuotaKey(PRODUCER_BYTE_RATE, ValueType.LONG, "bytes/s"),
    QuotaKey(CONSUMER_BYTE_RATE, ValueType.LONG, "bytes/s"),
    QuotaKey(REQUEST_PERCENTAGE, ValueType.DOUBLE, "% of the broker's thread"),
    QuotaKey(CONTROLLER_MUTATION_RATE, ValueType.DOUBLE, "partitions/s"),
)
CLIENT_QUOTAS: Final = {key.name: key for key in _CLIENT_KEYS}
"""The quotas of users and client ids."""
IP_QUOTAS: Final = {
    CONNECTION_CREATION_RATE: QuotaKey(CONNECTION_CREATION_RATE, ValueType.INT, "connections/s")
}
"""The quotas of addresses."""
ALL_QUOTAS: Final = CLIENT_QUOTAS | IP_QUOTAS
