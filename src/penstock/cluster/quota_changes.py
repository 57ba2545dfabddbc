"""Decisions about quotas: new quotas of an entity, and the entities that a filter matches. Pure.

The input is an image and a request, the output quotas or a domain error, as in `group_changes`; the
checks and their wording are Kafka's. The existing users, clients and addresses are not known, so an
entity need not exist to have quotas. Therefore the number of entities and the length of their names
are bounded.

All quotas of an entity are written together; an entity without quotas has no key. Each change
compares with the last change to the same entity. A name of the type `ip` must be an address: Kafka
also accepts a host name, and resolves it.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_address
from typing import Final, NamedTuple

from penstock.cluster import values
from penstock.cluster.controller import GuardedWrites, replacement
from penstock.cluster.image import MetadataImage, QuotaImage
from penstock.cluster.keys import Keys
from penstock.cluster.quota_entities import (
    ALL_QUOTAS,
    CLIENT_ID,
    CLIENT_QUOTAS,
    ENTITY_TYPES,
    IP,
    IP_QUOTAS,
    USER,
    QuotaEntity,
    QuotaKey,
    ValueType,
)
from penstock.cluster.stores.port import Compare
from penstock.core.errors import (
    InvalidRequestError,
    PolicyViolationError,
    UnsupportedEntityError,
)
from penstock.core.limits import QUOTA_ENTITIES_MAX, QUOTA_ENTITY_NAME_BYTES_MAX

_FRACTION_IGNORED: Final = 1e-6
"""Kafka's tolerance: the largest distance of a floating point number from a whole one."""

MATCH_EXACT: Final = 0
MATCH_DEFAULT: Final = 1
MATCH_SPECIFIED: Final = 2
"""How a part of a filter matches: one name, the default, or both."""


class QuotaChange(NamedTuple):
    """The change of the quotas of one entity; None removes a quota."""

    entity: QuotaEntity
    edits: tuple[tuple[str, float | None], ...]


class FilterPart(NamedTuple):
    """The part of a filter for one type."""

    entity_type: str
    match_type: int
    name: str | None


def decide_quotas(image: MetadataImage, change: QuotaChange) -> dict[str, float]:
    """Return the entity's quotas after the change; raise a domain error to reject it."""
    _check_distinct(change)
    _check_entity(change.entity)
    keys = _keys_for(change.entity)
    if len(change.edits) > len(ALL_QUOTAS):
        # Kafka accepts the removal of a missing quota, also repeatedly.
        unknown = next(name for name, _ in change.edits if name not in ALL_QUOTAS)
        raise InvalidRequestError(f"Invalid configuration key {unknown}")
    known = image.quotas.get(change.entity)
    quotas = {} if known is None else dict(known.quotas)
    for name, value in change.edits:
        if value is None:
            quotas.pop(name, None)
        else:
            _check_value(keys, name, value)
            quotas[name] = value
    if quotas and known is None:
        _check_room(image, change.entity)
    return quotas


def _check_distinct(change: QuotaChange) -> None:
    seen: set[str] = set()
    for name, _ in change.edits:
        if name in seen:
            raise InvalidRequestError(
                f"Duplicate quota key {name} not updating quota for this entity "
                f"{change.entity.kafka_text()}"
            )
        seen.add(name)


def _check_entity(entity: QuotaEntity) -> None:
    if not entity.parts:
        raise InvalidRequestError("Invalid empty client quota entity")
    for kind, name in entity.parts:
        if kind not in ENTITY_TYPES:
            raise InvalidRequestError(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise InvalidRequestError(f"Empty {kind} not supported")


def _keys_for(entity: QuotaEntity) -> Mapping[str, QuotaKey]:
    if not entity.has(IP):
        return CLIENT_QUOTAS
    if entity.has(USER) or entity.has(CLIENT_ID):
        raise InvalidRequestError(
            "Invalid quota entity combination, IP entity should not be combined with User or "
            "ClientId"
        )
    name = entity.name(IP)
    if name is not None and not _is_address(name):
        raise InvalidRequestError(f"{name} is not a valid IP or resolvable host.")
    return IP_QUOTAS


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _check_value(keys: Mapping[str, QuotaKey], name: str, value: float) -> None:
    key = keys.get(name)
    if key is None:
        raise InvalidRequestError(f"Invalid configuration key {name}")
    if math.isnan(value) or value <= 0.0:
        raise InvalidRequestError(f"Quota {name} must be greater than 0")
    if key.type is ValueType.DOUBLE:
        if math.isinf(value):
            raise InvalidRequestError(f"Quota {name} must be a finite number")
        return
    if value > key.type.value:
        article = "an" if key.type is ValueType.INT else "a"
        raise InvalidRequestError(
            f"Proposed value for {name} is too large for {article} {key.type.name}."
        )
    if abs(value % 1.0) > _FRACTION_IGNORED:
        raise InvalidRequestError(f"{name} cannot be a fractional value.")


def _check_room(image: MetadataImage, entity: QuotaEntity) -> None:
    for kind, name in entity.parts:
        if name is not None and len(name.encode()) > QUOTA_ENTITY_NAME_BYTES_MAX:
            raise PolicyViolationError(
                f"A {kind} that has quotas may have a name of {QUOTA_ENTITY_NAME_BYTES_MAX} bytes "
                "at most."
            )
    if len(image.quotas) >= QUOTA_ENTITIES_MAX:
        raise PolicyViolationError(
            f"{QUOTA_ENTITIES_MAX} entities have quotas, which is the maximum: delete unused "
            "quotas, or set a default."
        )


def quota_writes(
    keys: Keys,
    image: MetadataImage,
    entity: QuotaEntity,
    quotas: Mapping[str, float],
    guards: tuple[Compare, ...],
) -> GuardedWrites:
    """Return the transaction that stores exactly these quotas of an entity."""
    key = keys.quotas(entity)
    known = image.quotas.get(entity)
    revision = None if known is None else known.revision
    return replacement(key, revision, values.write_quotas(quotas) if quotas else None, guards)


def find_quotas(
    image: MetadataImage, parts: Sequence[FilterPart], *, strict: bool
) -> Iterator[tuple[QuotaEntity, QuotaImage]]:
    """Return the entities that match a filter, ordered by name; raise a domain error."""
    _check_filter(parts)
    return _found(image, parts, strict=strict)


def _found(
    image: MetadataImage, parts: Sequence[FilterPart], *, strict: bool
) -> Iterator[tuple[QuotaEntity, QuotaImage]]:
    for entity in sorted(image.quotas, key=QuotaEntity.text):
        if strict and len(entity.parts) != len(parts):
            continue
        if all(_matches(entity, part) for part in parts):
            yield entity, image.quotas[entity]


def _matches(entity: QuotaEntity, part: FilterPart) -> bool:
    if not entity.has(part.entity_type):
        return False
    return part.match_type == MATCH_SPECIFIED or entity.name(part.entity_type) == part.name


def _check_filter(parts: Sequence[FilterPart]) -> None:
    seen: set[str] = set()
    for part in parts:
        if not part.entity_type:
            raise InvalidRequestError("Invalid empty entity type.")
        if part.entity_type in seen:
            raise InvalidRequestError(
                f"Entity type {part.entity_type} cannot appear more than once in the filter."
            )
        if part.entity_type not in ENTITY_TYPES:
            raise UnsupportedEntityError(f"Unsupported entity type {part.entity_type}")
        seen.add(part.entity_type)
        _check_match(part)
    if IP in seen and len(seen) > 1:
        raise InvalidRequestError(
            "Invalid entity filter component combination. IP filter component should not be used "
            "with user or clientId filter component."
        )


def _check_match(part: FilterPart) -> None:
    match part.match_type:
        case 0 if part.name is None:
            raise InvalidRequestError(
                "Request specified MATCH_TYPE_EXACT, but set match string to null."
            )
        case 1 | 2 if part.name is not None:
            match_name = "DEFAULT" if part.match_type == MATCH_DEFAULT else "SPECIFIED"
            raise InvalidRequestError(
                f"Request specified MATCH_TYPE_{match_name}, but also specified a match string."
            )
        case 0 | 1 | 2:
            pass
        case _:
            raise InvalidRequestError(f"Unknown match type {part.match_type}")
