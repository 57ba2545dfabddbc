"""WriteTxnMarkers: a coordinator ends transactions in partitions that this broker leads.

Each marker is appended at once, and the answer is sent when all of them are committed. A group's
coordinator is notified of a marker in its partition in the step that appends it. It is an API
between brokers, and for operators that end a hanging transaction: it needs ALTER or CLUSTER_ACTION
on the cluster. A broker without an authorizer lets every client use it, as Kafka does.
"""

from collections.abc import Iterator
from typing import Final

from penstock.broker.answers import Answer
from penstock.broker.context import RequestContext
from penstock.broker.error_mapping import code_of
from penstock.broker.pacing.slices import NextTurn
from penstock.broker.partition_states import hosted_partition
from penstock.broker.pieces import promise, settled
from penstock.core.deferred import Deferred
from penstock.core.errors import PenstockError
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from penstock.replication.manager import TransactionEnd
from penstock.security.acls.values import Operation

STRICT_TRANSACTION_VERSION: Final = 2
"""Starting here, each end raises the producer's epoch: a marker with the records' epoch is late."""


def handle(request: WriteTxnMarkersRequest, context: RequestContext) -> Deferred[Answer]:
    """Append every marker; a client without permission gets an error for each, and none is."""
    is_denied = not (
        context.allows_cluster(Operation.ALTER, is_logged=False)
        or context.allows_cluster(Operation.CLUSTER_ACTION)
    )
    writing = _Writing(is_denied=is_denied)
    if context.permit is not None:
        return promise(_write_wide(request, writing, context), context)
    for marker, name in _ends(request):
        writing.expect(marker.producer_id, name)
    for marker, name in _ends(request):
        writing.write(marker, name, context)
    writing.finish_if_done()
    return writing.answer


def _ends(request: WriteTxnMarkersRequest) -> Iterator[tuple[WritableTxnMarker, TopicPartition]]:
    for marker in request.markers:
        for topic in marker.topics:
            for index in topic.partition_indexes:
                yield marker, TopicPartition(topic.name, index)


async def _write_wide(
    request: WriteTxnMarkersRequest, writing: "_Writing", context: RequestContext
) -> Answer:
    """Append very many markers in slices; each of them ends a transaction by itself."""
    services = context.services
    turn = NextTurn(services.turns, services.clock)
    for marker, name in _ends(request):
        writing.expect(marker.producer_id, name)
        await turn.wait_if_due()
    for marker, name in _ends(request):
        writing.write(marker, name, context)
        await turn.wait_if_due()
    writing.finish_if_done()
    return await settled(writing.answer)


class _Writing:
    """One request while its markers are being committed."""

    __slots__ = ("_codes", "_is_denied", "_pending", "answer")

    def __init__(self, *, is_denied: bool) -> None:
        self.answer: Deferred[Answer] = Deferred()
        self._is_denied = is_denied
        self._codes: dict[int, dict[TopicPartition, ErrorCode]] = {}
        """Of each producer, in the order of the request."""
        self._pending = 0

    def expect(self, producer_id: int, name: TopicPartition) -> None:
        """Note a marker to write; the answer waits for it."""
        self._codes.setdefault(producer_id, {})[name] = ErrorCode.NONE
        self._pending += 1

    def write(
        self, marker: WritableTxnMarker, name: TopicPartition, context: RequestContext
    ) -> None:
        """Append one marker."""
        services = context.services
        if self._is_denied:
            self._codes[marker.producer_id][name] = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            self._pending -= 1
            return

        def appended() -> None:
            services.coordinators.marker_written(
                name, marker.producer_id, marker.producer_epoch, commits=marker.transaction_result
            )

        def done(error: PenstockError | None) -> None:
            self._pending -= 1
            if error is not None:
                self._codes[marker.producer_id][name] = code_of(error)
            self.finish_if_done()

        try:
            partition = hosted_partition(name, context)
        except PenstockError as error:
            done(error)
            return
        end = TransactionEnd(
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            marker.transaction_result,
            marker.transaction_version >= STRICT_TRANSACTION_VERSION,
        )
        services.replicas.append_marker(
            partition, end, services.clock.now_ms(), on_appended=appended
        ).then(done)

    def finish_if_done(self) -> None:
        """Answer when no marker is pending."""
        if self._pending == 0 and not self.answer.is_set:
            self.answer.set(
                WriteTxnMarkersResponse(
                    markers=tuple(
                        WritableTxnMarkerResult(producer_id=producer_id, topics=_topics(codes))
                        for producer_id, codes in self._codes.items()
                    )
                )
            )


def _topics(codes: dict[TopicPartition, ErrorCode]) -> tuple[WritableTxnMarkerTopicResult, ...]:
    topics: dict[str, list[WritableTxnMarkerPartitionResult]] = {}
    for name, code in codes.items():
        topics.setdefault(name.topic, []).append(
            WritableTxnMarkerPartitionResult(partition_index=name.partition, error_code=code)
        )
    return tuple(
        WritableTxnMarkerTopicResult(name=topic, partitions=tuple(partitions))
        for topic, partitions in topics.items()
    )
