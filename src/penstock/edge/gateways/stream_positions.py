"""The positions of a stream of events: `0:41,1:7` is the last offset of each partition. Pure.

Guarantees: the text of any vector parses to the same vector; -1 is the position before offset 0.
Other texts raise `PositionError` with the reason. Sizes are bounded before numbers are parsed.
"""

import re
from collections.abc import Mapping
from typing import Final

from penstock.core.errors import PenstockError
from penstock.edge.gateways.web_limits import STREAM_PARTITIONS_MAX
from penstock.protocol.push.payloads import OFFSET_MAX, PARTITION_MAX

_ENTRY: Final = re.compile(r"([0-9]{1,10}):(-1|[0-9]{1,19})")
_ENTRY_CHARACTERS_MAX: Final = 31
TEXT_CHARACTERS_MAX: Final = STREAM_PARTITIONS_MAX * _ENTRY_CHARACTERS_MAX


class PositionError(PenstockError):
    """A text that is not a vector of positions."""


def read_positions(text: str) -> dict[int, int]:
    """Return partition to last offset."""
    if len(text) > TEXT_CHARACTERS_MAX:
        raise PositionError(
            f"positions of {len(text)} characters; at most {STREAM_PARTITIONS_MAX} partitions are "
            "accepted"
        )
    found: dict[int, int] = {}
    for entry in text.split(","):
        match = _ENTRY.fullmatch(entry.strip())
        if match is None:
            raise PositionError(
                f"{entry[:64]!r} is not a position; write partition:offset, such as 0:41,1:7"
            )
        partition, offset = int(match[1]), int(match[2])
        if partition > PARTITION_MAX or offset >= OFFSET_MAX:
            raise PositionError(f"{entry[:64]!r} is outside of the range of offsets")
        if partition in found:
            raise PositionError(f"partition {partition} has two positions")
        found[partition] = offset
    if len(found) > STREAM_PARTITIONS_MAX:
        raise PositionError(
            f"positions of {len(found)} partitions, at most {STREAM_PARTITIONS_MAX} are accepted"
        )
    return found


def write_positions(positions: Mapping[int, int]) -> str:
    """Return the text of partition to last offset."""
    return ",".join(f"{partition}:{offset}" for partition, offset in positions.items())
