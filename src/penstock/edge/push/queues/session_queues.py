"""`SessionQueues`: the queue subscriptions of one connection, and their members of share groups."""

from collections.abc import Sequence

from penstock.edge.push.queue_ports import QueueMember
from penstock.edge.push.queues.queue_reads import Owner, QueueReads, Shared
from penstock.edge.push.reactions import Settled
from penstock.edge.push.session import PushSession


class SessionQueues:
    """The queue subscriptions of one connection."""

    __slots__ = ("_owner", "_queues", "_server", "_session")

    def __init__(self, owner: Owner, session: PushSession, server: Shared) -> None:
        self._owner = owner
        self._session = session
        self._server = server
        self._queues: dict[int, QueueReads] | None = None

    def add(self, number: int, topic: str, member: QueueMember) -> None:
        """Begin to deliver to a subscription."""
        if self._queues is None:
            self._queues = {}
        self._queues[number] = QueueReads(
            self._owner, self._session, self._server, number, topic, member
        )

    def pull(self) -> None:
        """Acquire records, or write the acquired ones."""
        for queue in tuple((self._queues or {}).values()):
            if queue.has_records:
                self._owner.turn_soon()
            else:
                queue.pull()

    def take(self, bytes_max: int, now: float) -> tuple[list[bytes], int]:
        """Return frames of acquired records, and their bytes."""
        frames: list[bytes] = []
        written = 0
        for number, queue in tuple((self._queues or {}).items()):
            records = queue.take(bytes_max - written, now)
            if records:
                found, size = self._session.deliver_queued(number, records, now)
                frames += found
                written += size
        return frames, written

    def acknowledge(self, number: int, settled: Sequence[Settled]) -> None:
        """Send acknowledgements to the share group of a subscription."""
        queue = (self._queues or {}).get(number)
        if queue is None:
            self._owner.settled(number, settled, is_stored=False)
        else:
            queue.acknowledge(settled)

    def end(self, number: int | None) -> None:
        """Leave the share group of a subscription, or of all."""
        queues = self._queues or {}
        for one in tuple(queues) if number is None else (number,):
            queue = queues.pop(one, None)
            if queue is not None:
                queue.end()
