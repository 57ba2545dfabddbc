"""What a site remembers of its positions at the parent. Pure.

The parent's committed offset is the position. A cluster forgets offsets of groups without members
(`offsets.retention.minutes`, 7 days), another parent has never had them, and another broker with
the same site has replaced them. Then the site resumes at its own note, and does not send its whole
log again.

Guarantees: the note is never ahead of the parent. It may be behind by the transactions of the last
second before a crash; only in the cases above could their records be sent twice.
"""

import json
from collections.abc import Mapping
from typing import Final

from penstock.core.types import TopicPartition
from penstock.edge.pipes.up_pipe import Position, SentMark

NOTE_BYTES_MAX: Final = 16_777_216
"""20,000 partitions with the longest names."""
_VERSION: Final = 1


def note_text(positions: Mapping[TopicPartition, Position]) -> str:
    """Return the text of a note."""
    topics: dict[str, dict[str, list[object]]] = {}
    for at, one in positions.items():
        text = one.mark.text() if one.mark is not None else ""
        topics.setdefault(at.topic, {})[str(at.partition)] = [one.offset, text]
    return json.dumps({"version": _VERSION, "sent": topics})


def read_note(text: str) -> dict[TopicPartition, Position]:
    """Return the positions of a note; a note that cannot be read is empty."""
    found: dict[TopicPartition, Position] = {}
    try:
        document = json.loads(text) if text else {}
        for topic, partitions in document.get("sent", {}).items():
            for partition, (offset, mark) in partitions.items():
                position = Position(int(offset), SentMark.parse(str(mark)))
                found[TopicPartition(topic, int(partition))] = position
    except (ValueError, TypeError, AttributeError, RecursionError):
        return {}
    return found
