"""`PeerCalls`: markers, questions about transactions and share state, sent to other brokers.

- `write_markers` ends transactions in partitions that another broker leads (WriteTxnMarkers).
- `ask` asks the coordinator of a transaction on another broker before records are appended
  (AddPartitionsToTxn, KIP-890).
- `log_ends` reads the ends of logs, for the lag of share groups (ListOffsets).
- `share_state` reads and changes the delivery state of share groups (`share_calls`).

Items of one moment share a request. Markers and questions use different connections: a question may
wait for the end of the producer's last transaction, and so for markers. A failure is returned as a
value. Nothing is retried here, and which broker leads a partition is NOT known here.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from penstock.client.transport.call import Call
from penstock.core.errors import ClientError, PenstockError
from penstock.core.types import TopicPartition
from penstock.node.coordination.other_brokers import EndOf
from penstock.node.peers.peer_batches import PeerBatches
from penstock.node.peers.peer_connections import PeerConnections
from penstock.node.peers.peer_limits import MARKERS_MAX, QUESTIONS_MAX
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTransaction,
)
from penstock.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from penstock.coordinator.shares.share_messages import StateRequest, StateResponse
    from penstock.node.peers.share_calls import ShareCalls

Codes: TypeAlias = dict[TopicPartition, ErrorCode]

BATCH_VERSION: Final = 4
"""The first version of AddPartitionsToTxn that brokers send."""


class PeerCalls:
    """`node.coordination.other_brokers.OtherBrokers`."""

    def __init__(
        self,
        connections: PeerConnections,
        own_id: int,
        is_isolated: Callable[[], bool] = lambda: False,
    ) -> None:
        self._own_id = own_id
        self._is_isolated = is_isolated
        self._connections = connections
        self._markers = PeerBatches[EndOf, Codes](self._send_markers, items_max=MARKERS_MAX)
        self._questions = PeerBatches[AddPartitionsToTxnTransaction, AddPartitionsToTxnResponse](
            self._send_questions, items_max=QUESTIONS_MAX
        )

        self._shares: ShareCalls | None = None

    @property
    def own_id(self) -> int:
        """The id of this broker."""
        return self._own_id

    def is_isolated(self) -> bool:
        """Whether other brokers may soon count this one as stopped."""
        return self._is_isolated()

    async def write_markers(self, broker_id: int, end: EndOf) -> Codes | PenstockError:
        """End a transaction in partitions of a broker; return the code of each partition."""
        return await self._markers.submit(broker_id, end)

    async def ask(
        self, broker_id: int, transaction: AddPartitionsToTxnTransaction
    ) -> AddPartitionsToTxnResponse | PenstockError:
        """Ask the coordinator on a broker about one transaction."""
        return await self._questions.submit(broker_id, transaction)

    async def share_state(
        self, broker_id: int, request: "StateRequest"
    ) -> "StateResponse | PenstockError":
        """Send a request for one share-partition to the share coordinator on a broker."""
        if self._shares is None:
            # Many clusters have no share groups: they run without this code.
            from penstock.node.peers.share_calls import ShareCalls

            self._shares = ShareCalls(self._connections)
        return await self._shares.send(broker_id, request)

    async def log_ends(
        self, broker_id: int, names: Sequence[TopicPartition]
    ) -> "dict[TopicPartition, int | ErrorCode] | PenstockError":
        """Return the high watermarks of partitions that a broker leads."""
        from penstock.node.peers.end_calls import log_ends_of

        return await log_ends_of(self._connections, broker_id, names)

    async def stop(self) -> None:
        """Abandon what waits, and close the connections."""
        if self._shares is not None:
            await self._shares.stop()
        await self._markers.stop()
        await self._questions.stop()
        await self._connections.close()

    # --- Markers ---

    async def _send_markers(
        self, broker_id: int, slot: int, ends: Sequence[EndOf]
    ) -> Sequence[Codes]:
        found: dict[int, Codes] = {}
        for few in _rounds(ends):
            request = WriteTxnMarkersRequest(
                markers=tuple(_marker(ends[position]) for position in few)
            )
            call = Call(request, WriteTxnMarkersResponse, _codes_by_producer)
            codes = await self._connections.call(broker_id, call, f"markers-{slot}")
            for position in few:
                found[position] = codes.get(ends[position].producer_id, {})
        return [found[position] for position in range(len(ends))]

    # --- Questions ---

    async def _send_questions(
        self, broker_id: int, slot: int, asks: Sequence[AddPartitionsToTxnTransaction]
    ) -> Sequence[AddPartitionsToTxnResponse]:
        request = AddPartitionsToTxnRequest(transactions=tuple(asks))
        call = Call(request, AddPartitionsToTxnResponse, _same, version_min=BATCH_VERSION)
        answer = await self._connections.call(broker_id, call, f"questions-{slot}")
        if answer.error_code is not ErrorCode.NONE:
            return [AddPartitionsToTxnResponse(error_code=answer.error_code)] * len(asks)
        results = answer.results_by_transaction
        ids = [one.transactional_id for one in asks]
        if [one.transactional_id for one in results] != ids:
            raise ClientError(
                f"broker {broker_id} answered {len(results)} of {len(ids)} questions about "
                "transactions, or in another order"
            )
        return [_of_one(result) for result in results]


def _rounds(ends: Sequence[EndOf]) -> list[list[int]]:
    """Return positions in groups without a repeated producer: an answer names producers only."""
    rounds: list[list[int]] = []
    seen: dict[int, int] = {}
    for position, end in enumerate(ends):
        number = seen.get(end.producer_id, 0)
        seen[end.producer_id] = number + 1
        if number == len(rounds):
            rounds.append([])
        rounds[number].append(position)
    return rounds


def _marker(end: EndOf) -> WritableTxnMarker:
    topics: dict[str, list[int]] = {}
    for name in end.names:
        topics.setdefault(name.topic, []).append(name.partition)
    return WritableTxnMarker(
        producer_id=end.producer_id,
        producer_epoch=end.producer_epoch,
        transaction_result=end.commits,
        topics=tuple(
            WritableTxnMarkerTopic(name=topic, partition_indexes=tuple(indexes))
            for topic, indexes in topics.items()
        ),
        coordinator_epoch=end.coordinator_epoch,
        transaction_version=end.transaction_version,
    )


def _codes_by_producer(answer: WriteTxnMarkersResponse) -> dict[int, Codes]:
    return {
        marker.producer_id: {
            TopicPartition(topic.name, found.partition_index): found.error_code
            for topic in marker.topics
            for found in topic.partitions
        }
        for marker in answer.markers
    }


def _same(answer: AddPartitionsToTxnResponse) -> AddPartitionsToTxnResponse:
    return answer


def _of_one(result: AddPartitionsToTxnResult) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(results_by_transaction=(result,))
