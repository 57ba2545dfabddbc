"""`SiteMemory`: the own note of the positions of an up pipe, and when it is used.

The committed offset of the parent wins. The note counts if the parent does not know the position,
or knows one of another topic of this name: see `sent_notes`.
"""

import logging
from collections.abc import Iterable
from typing import Final
from uuid import UUID

from penstock.core.types import TopicPartition
from penstock.edge.pipes.ports import CommittedOffset
from penstock.edge.pipes.sent_notes import note_text, read_note
from penstock.edge.pipes.up_outbox import SentPartition
from penstock.edge.pipes.up_pipe import Position, SentMark
from penstock.edge.pipes.up_ports import Note

logger = logging.getLogger(__name__)

NOTE_SECONDS: Final = 1.0
"""Between two notes of the positions."""


class SiteMemory:
    """The noted positions of one pipe."""

    def __init__(self, pipe: str, note: Note) -> None:
        self._pipe = pipe
        self._note = note
        self._noted: dict[TopicPartition, Position] = {}
        self._due_at: float | None = None

    async def load(self) -> None:
        """Read the note."""
        self._noted = read_note(await self._note.load())

    def at(self, at: TopicPartition, topic_id: UUID) -> Position | None:
        """Return the noted position, if it is one of this topic."""
        noted = self._noted.get(at)
        if noted is None or noted.mark is None or noted.mark.topic_id != topic_id:
            return None
        return noted

    def position(self, one: SentPartition, committed: CommittedOffset | None) -> Position | None:
        """Return the position of a partition: the parent's, or the noted one."""
        found: Position | None = None
        if committed is not None:
            found = Position(committed.offset, SentMark.parse(committed.metadata))
            if found.mark is None or found.mark.topic_id == one.topic_id:
                return found
        noted = self.at(one.at, one.topic_id)
        if noted is None:
            return found
        logger.warning(
            "pipe %s: the parent does not know how far %s is; it goes on at offset %d, which this "
            "broker has noted",
            self._pipe,
            one.at,
            noted.offset,
        )
        one.is_uncommitted = True
        return noted

    async def sent(self, partitions: Iterable[SentPartition], now: float) -> None:
        """Records were sent: note it, at most once in a second."""
        if self._due_at is None:
            self._due_at = now + NOTE_SECONDS
        elif now >= self._due_at:
            await self.save(partitions)

    async def save(self, partitions: Iterable[SentPartition]) -> None:
        """Note the positions, if they have changed."""
        self._due_at = None
        sent = {
            one.at: Position(one.pipe.position, one.mark)
            for one in partitions
            if one.mark is not None and one.pipe.position >= 0 and not one.is_uncommitted
        }
        if not sent or sent.items() <= self._noted.items():
            return
        self._noted.update(sent)
        try:
            await self._note.save(note_text(self._noted))
        except OSError as error:
            logger.warning("pipe %s: positions not noted: %s", self._pipe, error)
