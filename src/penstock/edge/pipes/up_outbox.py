"""`Outbox`: the next records of an up pipe, as many as fit into one transaction.

Guarantees: at most `SendSize.bytes_max` bytes, and one batch more; each partition gets its turn.
Records above the last stable offset wait: their transactions are undecided.
"""

import asyncio
from typing import Final
from uuid import UUID

from penstock.core.errors import NotLeaderError
from penstock.core.types import TopicPartition
from penstock.edge.pipes.down_pipe import Phase, Problem
from penstock.edge.pipes.site_batches import Outgoing, outgoing
from penstock.edge.pipes.up_pipe import Rest, SentMark, UpPartition
from penstock.edge.pipes.up_ports import Sites

READ_BYTES_MAX: Final = 1_048_576
"""Of one partition in one transaction, so that each gets its turn."""


SEND_BYTES_MIN: Final = 16_384
_STEPS: Final = 16


class SendSize:
    """The bytes of one transaction: half as many after a failure, slowly more after successes.

    A slow line does not carry a large transaction within the time of a call: without this the same
    bytes would be sent again and again.
    """

    def __init__(self, bytes_max: int) -> None:
        self._most = self.bytes_max = bytes_max

    def sent(self) -> None:
        """A transaction was committed."""
        self.bytes_max = min(self._most, self.bytes_max + max(1, self._most // _STEPS))

    def failed(self) -> None:
        """The parent did not answer in time."""
        self.bytes_max = max(min(self._most, SEND_BYTES_MIN), self.bytes_max // 2)


class SentPartition:
    """One partition of an up pipe."""

    __slots__ = (
        "at",
        "is_joining",
        "is_uncommitted",
        "mark",
        "pipe",
        "refusal",
        "refused_until",
        "topic_id",
    )

    def __init__(self, at: TopicPartition, topic_id: UUID, pipe: UpPartition) -> None:
        self.at = at
        self.topic_id = topic_id
        self.pipe = pipe
        self.mark: SentMark | None = None
        """Of the position, if records were sent."""
        self.is_joining = True
        self.is_uncommitted = False
        """Whether the parent does not have the position."""
        self.refused_until = 0.0
        self.refusal: Problem | None = None
        """Why the parent refuses the records; until another attempt."""


class Outbox:
    """Reads the partitions of one pipe in turn."""

    def __init__(self, partitions: list[SentPartition], sites: Sites, size: SendSize) -> None:
        self._partitions = partitions
        self._sites = sites
        self._size = size
        self._turn = 0

    def turn(self) -> None:
        """Begin the next transaction with the next partition."""
        self._turn += 1

    async def next_parts(self, now: float) -> dict[TopicPartition, Outgoing]:
        """Return the records of the next transaction; empty if all is sent."""
        first = self._turn % len(self._partitions) if self._partitions else 0
        parts: dict[TopicPartition, Outgoing] = {}
        left = self._size.bytes_max
        for one in self._partitions[first:] + self._partitions[:first]:
            if left <= 0:
                break
            if now < one.refused_until:
                continue
            part = await self._read(one, min(left, READ_BYTES_MAX))
            if part is not None:
                parts[one.at] = part
                left -= part.size_bytes
        return parts

    async def _read(self, one: SentPartition, bytes_max: int) -> Outgoing | None:
        pipe = one.pipe
        if pipe.phase is not Phase.COPYING:
            return None
        one.refusal = None
        log = self._sites.log(one.at)
        if log is None or log.topic_id != one.topic_id:
            raise NotLeaderError(f"{one.at} is not served now")
        if log.start_offset > pipe.position:
            one.mark = SentMark.without_batch(one.topic_id)
            if isinstance(pipe.overtaken(log.start_offset), Rest):
                return None
        if log.stable_offset <= pipe.position:
            return None
        read = await self._sites.read(one.at, pipe.position, bytes_max)
        # Small batches are joined record by record: not on the loop.
        return await asyncio.to_thread(
            outgoing, read, pipe.position, one.topic_id, is_joining=one.is_joining
        )
