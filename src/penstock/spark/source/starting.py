"""Where reading starts and ends: a position for every partition, from the words of the options.

    startingTimestamp             one time for all          startingTimestamp wins over
    startingOffsetsByTimestamp    a time for each           ...ByTimestamp, which wins over
    startingOffsets               earliest, latest, JSON    startingOffsets (Spark's order)

and the same for the end. A position is looked up in two steps, because only the broker knows the
offset of a time: `lookups` returns the requests, `offsets_from` turns the responses into offsets. A
time after the last record is an error, or the end: `startingOffsetsByTimestampStrategy`; for an end
it is always the end.

Pure: it sends no request itself.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.core.types import TopicPartition
from penstock.spark.errors import OptionError
from penstock.spark.offsets import PartitionPosition
from penstock.spark.option_values import read_integer
from penstock.spark.partition_json import (
    TIMES_EXAMPLE,
    VALUES_EXAMPLE,
    partition_names,
    read_numbers,
)

LATEST: Final = -1
EARLIEST: Final = -2
"""The same numbers mean offsets in the options' JSON and timestamps in ListOffsets."""
NOT_FOUND: Final = -1
"""The offset that a broker returns for a time after the partition's last record."""


class PositionOptions(NamedTuple):
    """The three options that name one side of the range, the winning one first."""

    timestamp: str
    timestamps: str
    offsets: str


STARTING: Final = PositionOptions(
    "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets"
)
ENDING: Final = PositionOptions("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")


@dataclass(frozen=True, slots=True)
class Position:
    """One side of the range; exactly one of the last four fields is set."""

    option: str
    edge: int | None = None
    """`EARLIEST` or `LATEST` in every partition."""
    offsets: Mapping[TopicPartition, int] | None = None
    """An offset for each partition, which may be `EARLIEST` or `LATEST`."""
    timestamp_ms: int | None = None
    """The first record at or after this time in every partition."""
    timestamps_ms: Mapping[TopicPartition, int] | None = None
    """The same as `timestamp_ms`, with a time for each partition."""

    def has_edge(self, edge: int) -> bool:
        """Return whether the options put any partition at this edge."""
        return self.edge == edge or edge in (self.offsets or {}).values()


def read_position(options: Mapping[str, str], names: PositionOptions, default: int) -> Position:
    """Return the position that the options define; `options` has keys in lower case."""
    if (text := options.get(names.timestamp.lower())) is not None:
        time = read_integer(names.timestamp, text, lowest=0)
        return Position(names.timestamp, timestamp_ms=time)
    if (text := options.get(names.timestamps.lower())) is not None:
        times = read_numbers(names.timestamps, text, lowest=0, example=TIMES_EXAMPLE)
        return Position(names.timestamps, timestamps_ms=times)
    text = options.get(names.offsets.lower())
    word = "" if text is None else text.strip().lower()
    if text is None or word in {"earliest", "latest"}:
        edge = {"earliest": EARLIEST, "latest": LATEST}.get(word, default)
        return Position(names.offsets, edge=edge)
    if not word.startswith("{"):
        raise OptionError(
            names.offsets,
            f"{text[:100]!r} is no position.",
            f"Set earliest, latest, or JSON such as {VALUES_EXAMPLE}.",
        )
    offsets = read_numbers(names.offsets, text, lowest=EARLIEST, example=VALUES_EXAMPLE)
    return Position(names.offsets, offsets=offsets)


def require_order(start: Position, end: Position) -> None:
    """Reject a start after the end, if the options alone show it."""
    pairs = ((start.offsets, end.offsets), (start.timestamps_ms, end.timestamps_ms))
    for starts, ends in pairs:
        if starts is None or ends is None:
            continue
        if starts.keys() != ends.keys():
            raise OptionError(
                end.option,
                f"it names other partitions than {start.option}: "
                f"{partition_names(starts.keys() ^ ends.keys())}.",
                "Name the same partitions in both.",
            )
        for at, first in starts.items():
            if first >= 0 and ends[at] >= 0 and first > ends[at]:
                raise _backwards(start.option, end.option, at, first, ends[at])
    if start.timestamp_ms is not None and end.timestamp_ms is not None:
        first, last = start.timestamp_ms, end.timestamp_ms
        if first > last:
            raise _backwards(start.option, end.option, None, first, last)


def lookups(position: Position, assigned: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the requests to the brokers: a time for each partition, or the number of an edge.

    Partitions whose offset is in the options are not looked up.
    """
    _require_all(position, assigned)
    if position.edge is not None:
        return dict.fromkeys(assigned, position.edge)
    if position.timestamp_ms is not None:
        return dict.fromkeys(assigned, position.timestamp_ms)
    if position.timestamps_ms is not None:
        return dict(position.timestamps_ms)
    assert position.offsets is not None
    return {at: offset for at, offset in position.offsets.items() if offset < 0}


def without_match(
    position: Position, found: Mapping[TopicPartition, PartitionPosition], *, may_be_latest: bool
) -> list[TopicPartition]:
    """Return the partitions whose time is after their last record: look up their end next.

    Raise an error unless the options accept the end.
    """
    missing = [at for at, answer in found.items() if answer.offset == NOT_FOUND]
    if missing and not may_be_latest:
        raise OptionError(
            position.option,
            f"there is no record at or after this time in {partition_names(missing)}.",
            "Set an earlier time, or set startingOffsetsByTimestampStrategy to latest to start "
            "such partitions at their end.",
        )
    return missing


def offsets_from(
    position: Position,
    assigned: Collection[TopicPartition],
    found: Mapping[TopicPartition, PartitionPosition],
) -> dict[TopicPartition, PartitionPosition]:
    """Return the offset of each partition, from the brokers' responses and the options."""
    given = position.offsets or {}
    positions = {at: found[at] if at in found else PartitionPosition(given[at]) for at in assigned}
    assert all(one.offset >= 0 for one in positions.values())
    return positions


def _require_all(position: Position, assigned: Collection[TopicPartition]) -> None:
    """Raise unless options with partitions name all partitions: the others would be guessed."""
    named = position.offsets if position.offsets is not None else position.timestamps_ms
    if named is None or named.keys() == set(assigned):
        return
    missing, extra = set(assigned) - named.keys(), named.keys() - set(assigned)
    parts = []
    if missing:
        parts.append(f"{partition_names(missing)} will be read but is not named")
    if extra:
        parts.append(f"{partition_names(extra)} is named but is not read or does not exist")
    hint = " For offsets, -1 is the latest and -2 the earliest." if position.offsets else ""
    raise OptionError(
        position.option, f"{'; '.join(parts)}.", f"Name exactly the partitions to read.{hint}"
    )


def _backwards(
    start: str, end: str, at: TopicPartition | None, first: int, last: int
) -> OptionError:
    place = "" if at is None else f" for {at}"
    return OptionError(
        start,
        f"it is {first}{place}, which is after {end}, {last}.",
        "Set a start that is not after the end.",
    )
