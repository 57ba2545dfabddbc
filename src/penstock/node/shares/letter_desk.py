"""`LetterDesk`: the way of share-partitions to their dead letters, and counters of deliveries.

The code that writes letters is imported by the first letter: a group without a dead-letter topic
costs nothing. It decides nothing.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from penstock.cluster.configs.group_configs import DeliverySettings
from penstock.coordinator.shares.delivery.acquisition import Acquired
from penstock.coordinator.shares.delivery.share_delivery import ShareDelivery
from penstock.node.shares.state_calls import Tasks
from penstock.replication.hosted_partition import HostedPartition

if TYPE_CHECKING:
    from penstock.node.shares.share_dead_letters import DeadLetters


class LetterSender(Protocol):
    """The letters of one share-partition."""

    @property
    def is_sending(self) -> bool:
        """Whether a write is under way."""
        ...

    @property
    def is_waiting(self) -> bool:
        """Whether the last write failed, and the next one comes later."""
        ...

    def send(self) -> None:
        """Begin to write letters that are due, unless a write is under way or a pause lasts."""
        ...

    def stop(self) -> None:
        """Begin no write any more; a write under way still ends."""
        ...


class LetterDesk:
    """The letters and the counters of all share-partitions of one broker."""

    def __init__(
        self,
        open_letters: "Callable[[], DeadLetters] | None" = None,
        tasks: Tasks | None = None,
    ) -> None:
        """`open_letters` is called by the first letter."""
        self._open_letters = open_letters
        self._tasks = tasks
        self.letters: DeadLetters | None = None
        self.deliveries = 0
        self.redeliveries = 0

    def count(self, acquired: Sequence[Acquired]) -> None:
        """Count deliveries."""
        for first, last, delivery_count in acquired:
            self.deliveries += last - first + 1
            if delivery_count > 1:
                self.redeliveries += last - first + 1

    def forget(self, group: str) -> None:
        """Forget the problems of a group that has no members here."""
        if self.letters is not None:
            self.letters.forget(group)

    def sender(
        self,
        group: str,
        hosted: HostedPartition,
        delivery: ShareDelivery,
        settings: Callable[[], DeliverySettings],
        on_change: Callable[[], None],
    ) -> LetterSender:
        """Return the sender of a share-partition."""
        from penstock.node.shares.letter_sender import Sender

        assert self._open_letters is not None, "a broker that serves share groups"
        assert self._tasks is not None
        if self.letters is None:
            self.letters = self._open_letters()
        return Sender(group, hosted, delivery, settings, (self.letters, self._tasks), on_change)


NO_LETTERS: Final = LetterDesk()
"""For share-partitions of tests, whose groups have no dead-letter topic."""
