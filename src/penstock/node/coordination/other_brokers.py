"""`OtherBrokers`: the brokers of a cluster as the coordinators of one of them use them (a port).

A broker that is alone has none. `node.peers.peer_calls` implements it.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from penstock.core.errors import PenstockError
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from penstock.coordinator.shares.share_messages import StateRequest, StateResponse
    from penstock.protocol.messages.add_partitions_to_txn import (
        AddPartitionsToTxnResponse,
        AddPartitionsToTxnTransaction,
    )


class EndOf(NamedTuple):
    """The end of one transaction, in partitions that one broker leads."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commits: bool
    transaction_version: int
    names: tuple[TopicPartition, ...]


class OtherBrokers(Protocol):
    """Calls to other brokers. A failed call is a value; nothing is retried."""

    @property
    def own_id(self) -> int:
        """The id of this broker."""
        ...

    def is_isolated(self) -> bool:
        """Whether other brokers may soon count this one as stopped."""
        ...

    async def write_markers(
        self, broker_id: int, end: EndOf
    ) -> Mapping[TopicPartition, ErrorCode] | PenstockError:
        """End a transaction in partitions of a broker; return the code of each partition."""
        ...

    async def ask(
        self, broker_id: int, transaction: "AddPartitionsToTxnTransaction"
    ) -> "AddPartitionsToTxnResponse | PenstockError":
        """Ask the coordinator on a broker about one transaction."""
        ...

    async def log_ends(
        self, broker_id: int, names: Sequence[TopicPartition]
    ) -> "dict[TopicPartition, int | ErrorCode] | PenstockError":
        """Return the high watermarks of partitions that a broker leads."""
        ...

    async def share_state(
        self, broker_id: int, request: "StateRequest"
    ) -> "StateResponse | PenstockError":
        """Send a request for one share-partition to the share coordinator on a broker.

        The requests of one type are carried out in the order of their calls.
        """
        ...
