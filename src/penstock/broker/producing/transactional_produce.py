"""Produce within a transaction: checks the producer, and keeps order while a coordinator is asked.

All transactional batches of a request belong to one producer, and the request names its
transactional id; else all of it is refused. When the transaction is open in every partition already
the batches are appended at once. Otherwise its coordinator is asked first, and later requests of
the same producer stay behind this one. It does NOT validate or append: `append_all` does. Nor does
it authorize: the caller passes only batches for topics that the client may write to.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from penstock.broker.answers import DEFECT, Answer, HoldingAnswer, Waiter, WaitingAnswer
from penstock.broker.context import RequestContext
from penstock.broker.producing.transaction_check import Claim, TransactionCheck
from penstock.broker.quotas.meter import metered
from penstock.core.deferred import Deferred
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.produce import PartitionProduceResponse
from penstock.records.batch import (
    CRC_START,
    HEADER_BYTES,
    MAGIC,
    MAGIC_POSITION,
    TRANSACTIONAL,
    read_header,
)
from penstock.replication.hosted_partition import HostedPartition

logger = logging.getLogger(__name__)

_ATTRIBUTES_POSITION: Final = CRC_START + 1
"""The low byte of the attributes, the first field under the checksum."""
IMPLICIT_ADD_VERSION: Final = 12
"""Starting at this version the broker, not the client, adds partitions to transactions."""
ABORTABLE_VERSION: Final = 11
"""The first version whose clients know TRANSACTION_ABORTABLE."""
_COME_BACK: Final = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
"""Codes that producers expect only from a coordinator; another code lets them retry."""

AppendAll = Callable[[ErrorCode | None, TransactionCheck | None], Answer | Deferred[Answer]]
"""Appends every batch of the request, or refuses all for one reason."""


def append_transaction(
    transactional_id: str,
    batches: Iterable[tuple[HostedPartition | None, memoryview]],
    context: RequestContext,
    append_all: AppendAll,
) -> Answer | Deferred[Answer]:
    """Append the batches of one transaction, after its coordinator was asked if need be."""
    producers, sequences = _transactional(batches)
    if not producers:
        return append_all(None, None)
    if len(producers) > 1:
        return append_all(ErrorCode.INVALID_PRODUCER_ID_MAPPING, None)
    ((producer_id, producer_epoch),) = producers
    check = TransactionCheck(
        context,
        Claim(transactional_id, producer_id, producer_epoch),
        adds=context.api_version >= IMPLICIT_ADD_VERSION,
    )
    services = context.services
    if services.transaction_turns.is_free(producer_id) and not check.begin(sequences):
        return append_all(None, check)
    verifying = _Verifying()
    answer = WaitingAnswer(verifying)
    turn = services.transaction_turns.take(producer_id)

    async def verify() -> None:
        outcome: Answer | Deferred[Answer]
        try:
            await turn.wait()
            if check.begin(sequences):
                await check.ask()
            outcome = append_all(None, check)
            await _appended(outcome)
        except Exception:
            # Caught here, because a task that ends with an exception ends the broker.
            logger.exception("a transactional produce failed; its connection is closed")
            outcome = DEFECT
        finally:
            turn.end()
        if isinstance(outcome, Deferred):
            if isinstance(outcome, WaitingAnswer):
                verifying.appended = outcome.waiter
            outcome.then(answer.set)
        else:
            answer.set(outcome)

    work = verify()
    services.tasks.start(work if context.meter is None else metered(work, context.meter))
    return answer


async def _appended(outcome: Answer | Deferred[Answer]) -> None:
    """Wait until the batches are in the logs: the producer's next ones must not get ahead."""
    if isinstance(outcome, HoldingAnswer) and outcome.is_holding:
        released = asyncio.Event()
        outcome.on_release = released.set
        await released.wait()


def _transactional(
    batches: Iterable[tuple[HostedPartition | None, memoryview]],
) -> tuple[set[tuple[int, int]], dict[HostedPartition, int]]:
    """The producer of the transactional batches, and their first sequences by partition."""
    producers: set[tuple[int, int]] = set()
    sequences: dict[HostedPartition, int] = {}
    for partition, records in batches:
        if not is_transactional(records):
            continue
        header = read_header(records)
        producers.add((header.producer_id, header.producer_epoch))
        if partition is not None and not partition.is_mirror:
            # Batches for a mirror are refused: its partition must not join the transaction.
            sequences[partition] = header.base_sequence
    return producers, sequences


def is_transactional(records: bytes | bytearray | memoryview) -> bool:
    """Whether the first batch claims to be transactional; validation follows later."""
    return (
        len(records) >= HEADER_BYTES
        and records[MAGIC_POSITION] == MAGIC
        and bool(records[_ATTRIBUTES_POSITION] & TRANSACTIONAL)
    )


class _Verifying:
    """`Waiter` of a transactional produce."""

    __slots__ = ("appended",)

    def __init__(self) -> None:
        self.appended: Waiter | None = None
        """The `Waiter` of the answer after the batches were appended."""

    def abandon(self) -> None:
        """The client has disconnected. Its batches are appended, or refused by the coordinator."""
        if self.appended is not None:
            self.appended.abandon()

    def hurry(self) -> None:
        """Do nothing: there is no partial answer."""


def unverified(index: int, code: ErrorCode, api_version: int) -> PartitionProduceResponse:
    """The answer for a partition whose transaction the coordinator did not confirm."""
    message = None
    if code in _COME_BACK:
        message = f"the coordinator could not say whether the transaction is open: {code.name}"
        code = ErrorCode.NOT_ENOUGH_REPLICAS
    elif code is ErrorCode.TRANSACTION_ABORTABLE and api_version < ABORTABLE_VERSION:
        code = ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.INVALID_TXN_STATE:
        message = "the partition was not added to the transaction"
    return PartitionProduceResponse(
        index=index, error_code=code, base_offset=-1, error_message=message
    )
