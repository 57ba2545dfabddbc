"""The file of a reset plan, as Kafka's own tool exports and reads it (pure).

One line for each partition, without a heading:

    orders,0,42                     topic, partition, offset
    billing,orders,0,42             with the group first: an export of several groups

Names are quoted as in Kafka's tool, so both tools write the same bytes for the same plan, apart
from the order of the lines.
"""

import csv
import io
from collections.abc import Iterable, Mapping
from typing import Final

from penstock.core.errors import InvalidRequestError
from penstock.core.types import TopicPartition

UNQUOTED_CHARACTERS_MAX: Final = 24
"""Kafka's writer quotes every longer name, also without a special character."""

_FIELDS_WITHOUT_GROUP: Final = 3
_FIELDS_WITH_GROUP: Final = 4


def write_plan(offsets: Mapping[TopicPartition, int]) -> str:
    """Return the lines for one group."""
    return "".join(
        f"{_quoted(at.topic)},{at.partition},{offset}\n" for at, offset in offsets.items()
    )


def read_plan(text: str, group_id: str) -> dict[TopicPartition, int]:
    """Return a file's offsets for this group; `InvalidRequestError` names a wrong line."""
    offsets: dict[TopicPartition, int] = {}
    for number, fields in enumerate(_rows(text), start=1):
        if not fields:
            continue
        if len(fields) == _FIELDS_WITH_GROUP:
            if fields.pop(0) != group_id:
                continue
        elif len(fields) != _FIELDS_WITHOUT_GROUP:
            raise _wrong(number, f"it has {len(fields)} fields")
        topic, partition, offset = (field.strip() for field in fields)
        if not topic or not partition.isdecimal() or not offset.isdecimal():
            raise _wrong(number, "partition and offset are whole numbers")
        at = TopicPartition(topic, int(partition))
        if at in offsets:
            raise _wrong(number, f"{at} is there twice")
        offsets[at] = int(offset)
    if not offsets:
        raise InvalidRequestError(f"the file has no offsets for group {group_id}.")
    return offsets


def _rows(text: str) -> Iterable[list[str]]:
    try:
        return list(csv.reader(io.StringIO(text), strict=True))
    except csv.Error as error:
        raise InvalidRequestError(f"the file is not CSV: {error}.") from error


def _quoted(name: str) -> str:
    is_plain = len(name) <= UNQUOTED_CHARACTERS_MAX and all(letter > "," for letter in name)
    escaped = name.replace('"', '""')
    return name if is_plain else f'"{escaped}"'


def _wrong(number: int, why: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"line {number} is no part of a reset plan: {why}. "
        "A line is topic,partition,offset, or group,topic,partition,offset."
    )
