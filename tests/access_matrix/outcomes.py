"""`outcome`: an answer, reduced to the parts that permissions decide.

Kept are error codes, the names of the entries they belong to, authorized operations, and whether
lists that a client may be denied have entries. Numbers that differ between brokers are dropped.
Entries of lists are sorted, and entries with names that are not of the matrix are left out. So two
brokers have equal texts exactly if they allow and hide the same.
"""

from dataclasses import fields, is_dataclass
from typing import Any, Final
from uuid import UUID

from penstock.protocol.codec import Message
from penstock.protocol.error_codes import ErrorCode
from penstock.security.acls.values import Operation
from tests.access_matrix import names
from tests.access_matrix.administration_requests import METADATA_TOPIC, METRICS
from tests.access_matrix.names import World
from tests.access_matrix.transaction_requests import OFFSETS_TOPIC

CLOSED: Final = "closed"
OPEN: Final = "open"
EMPTY: Final = "empty"
"""An answer without an error code and without an entry."""

NAME_FIELDS: Final = frozenset(
    {
        *("name", "topic", "topic_name", "group_id", "transactional_id", "key"),
        *("resource_name", "user", "entity_name"),
    }
)
NUMBER_FIELDS: Final = {
    **dict.fromkeys(("index", "partition", "partition_index", "partition_id"), "p"),
    "resource_type": "type",
}
CODE_FIELDS: Final = frozenset({"error_code", "partition_error_code", "topic_config_error_code"})
OPERATION_FIELDS: Final = frozenset(
    {"authorized_operations", "topic_authorized_operations", "cluster_authorized_operations"}
)
SOME_FIELDS: Final = frozenset(
    {
        *("active_producers", "api_keys", "brokers", "config_resources", "configs"),
        *("resources", "subscribed_topic_names"),
    }
)
"""Lists of which only the presence of entries is kept."""
KNOWN_NAMES: Final = frozenset(
    {
        *(names.TOPICS + names.GROUPS + names.TRANSACTIONS),
        *(names.OTHER_TOPIC, names.OTHER_MISSING_TOPIC),
        *(names.OTHER_GROUP, names.OTHER_MISSING_GROUP, names.OTHER_TRANSACTION),
        *(names.MISSING_USER, str(names.NODE_ID), "", METRICS, METADATA_TOPIC, OFFSETS_TOPIC),
    }
)
NOT_ASKED: Final = -(2**31)
"""The value of authorized operations that a client did not ask for."""


def outcome(answer: Message | None, world: World) -> str:
    """Return the reduced answer; None is a connection that the broker closed."""
    if answer is None:
        return CLOSED
    return _struct(answer, world) or EMPTY


def _struct(value: Any, world: World) -> str | None:  # noqa: ANN401 - any part of any message
    """Return the text of one structure; None if its name is not of the matrix."""
    words: list[str] = []
    for one in fields(value):
        part = getattr(value, one.name)
        if one.name in NAME_FIELDS and isinstance(part, str):
            if part not in KNOWN_NAMES:
                return None
            if part or one.name == "resource_name":
                words.append(part or "''")
        elif (word := _field(one.name, part, world)) is not None:
            words.append(word)
    return " ".join(words)


def _field(name: str, value: Any, world: World) -> str | None:  # noqa: ANN401 - any field
    if name in CODE_FIELDS:
        code = ErrorCode(value).name
        if name == "topic_config_error_code":
            return f"configs:{code}" if value else None
        return code
    if name in NUMBER_FIELDS and isinstance(value, int):
        return f"{NUMBER_FIELDS[name]}{value}"
    if isinstance(value, UUID) and name == "topic_id":
        return f"id({world.topic_name(value)})" if value.int else None
    if name in OPERATION_FIELDS:
        return _operations(value)
    if name in SOME_FIELDS:
        return f"some {name}" if value else None
    if isinstance(value, tuple) and value and is_dataclass(value[0]):
        entries = sorted(filter(None, (_struct(entry, world) for entry in value)))
        return f"{name}[{'; '.join(entries)}]" if entries else None
    return None


def _operations(bits: int) -> str | None:
    if bits == NOT_ASKED:
        return None
    listed = [one.name for one in Operation if bits >> one & 1]
    return f"operations({' '.join(listed)})"
