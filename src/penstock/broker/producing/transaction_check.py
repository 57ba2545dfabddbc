"""Asks a coordinator before the first records of its transaction are appended (KIP-890).

A transactional batch may be appended if its transaction is open in the partition already, or if the
coordinator, on this broker or another one, says that the partition belongs to it. For clients of
transaction version 2 the broker adds the partition; older clients have added it, and the broker
only checks. A coordinator that is still ending the producer's last transaction is asked again for a
short while, because the client did nothing wrong. So is one whose answer came after the marker of
that last transaction: the marker ends each verification, also the one of the next transaction.

It appends nothing, and it does NOT decide the state of the transaction.
"""

import asyncio
from collections.abc import Mapping
from typing import Final, NamedTuple

from penstock.broker.context import RequestContext
from penstock.broker.error_mapping import code_of
from penstock.core.errors import PenstockError
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.replication.hosted_partition import HostedPartition
from penstock.replication.verification import (
    begin_verification,
    confirm_verification,
    is_pending,
)
from penstock.storage.log.open_transactions import NO_GUARD

BROKER_VERSION: Final = 5
"""The version of AddPartitionsToTxn that brokers send."""
RETRY_SECONDS: Final = 0.001
"""The first pause; each later one is twice as long. Kafka begins with the longest. Nearly always
the coordinator keeps the question until it can say yes (`coordinator.transactions.adding`), and it
is not repeated: 0 of 4,000 in `benchmarks.groups`. Without that, one durable producer committed 75
transactions a second with these pauses, and 39 with 20 ms each time: so they stay."""
RETRY_SECONDS_LONGEST: Final = 0.02
"""Kafka's add.partitions.to.txn.retry.backoff.ms."""
RETRY_SECONDS_MAX: Final = 0.1
"""Kafka's add.partitions.to.txn.retry.backoff.max.ms: then the client gets a retriable error."""

MARKERS_BEFORE_AN_ANSWER_MAX: Final = 3
"""A coordinator sends a marker again if it got no answer. More markers mean another transaction:
the append is refused."""


class Claim(NamedTuple):
    """The producer's identity in a request."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class TransactionCheck:
    """One request's question to the coordinator of its transaction."""

    __slots__ = ("_adds", "_claim", "_context", "_sequences", "errors", "guards")

    def __init__(self, context: RequestContext, claim: Claim, *, adds: bool) -> None:
        self._context = context
        self._claim = claim
        self._adds = adds
        self._sequences: Mapping[HostedPartition, int] = {}
        self.guards: dict[HostedPartition, int] = {}
        """The guards that appends must present, for partitions where no transaction is open yet."""
        self.errors: dict[HostedPartition, ErrorCode] = {}
        """Partitions to which nothing may be appended, and why."""

    def begin(self, batches: Mapping[HostedPartition, int]) -> bool:
        """Whether the coordinator must be asked; `batches` has the first sequences."""
        # A request that waited for its turn begins anew: others may have opened the transaction.
        self.guards.clear()
        self.errors.clear()
        self._sequences = batches
        now_ms = self._context.services.clock.now_ms()
        for partition in batches:
            self._begin(partition, now_ms)
        return bool(self.guards)

    def _begin(self, partition: HostedPartition, now_ms: int) -> None:
        claim = self._claim
        try:
            guard = begin_verification(
                partition,
                (claim.producer_id, claim.producer_epoch),
                self._sequences[partition],
                now_ms,
                adds=self._adds,
            )
        except PenstockError as error:
            self.errors[partition] = code_of(error)
            return
        if guard != NO_GUARD:
            self.guards[partition] = guard

    async def ask(self) -> None:
        """Ask about all partitions that have a guard; fills `errors`."""
        clock = self._context.services.clock
        deadline = clock.monotonic() + RETRY_SECONDS_MAX
        codes = await self._ask_once()
        pause_seconds = RETRY_SECONDS
        while (
            self._adds
            and ErrorCode.CONCURRENT_TRANSACTIONS in codes.values()
            and clock.monotonic() < deadline
        ):
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, RETRY_SECONDS_LONGEST)
            codes = await self._ask_once()
        for _ in range(MARKERS_BEFORE_AN_ANSWER_MAX):
            if not self._begin_revoked(codes):
                break
            codes = await self._ask_once()
        for partition, guard in self.guards.items():
            code = codes.get(partition.name, ErrorCode.UNKNOWN_SERVER_ERROR)
            if not partition.state.is_leader:
                # The answer was for a role that is over: another leader may have appended a marker.
                code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            if code is ErrorCode.NONE:
                confirm_verification(partition, self._claim.producer_id, guard)
            else:
                self.errors[partition] = code

    def _begin_revoked(self, codes: Mapping[TopicPartition, ErrorCode]) -> bool:
        """Begin anew where a marker came before the coordinator's yes; return whether one did.

        Two brokers write and ask at once: the coordinator of the last transaction keeps the
        question until its markers are written, and the marker in this partition ended the
        verification. The yes may not be used, since it may be older than the marker.
        """
        producer_id = self._claim.producer_id
        revoked = [
            partition
            for partition, guard in self.guards.items()
            if codes.get(partition.name) is ErrorCode.NONE
            and not is_pending(partition, producer_id, guard)
        ]
        for partition in revoked:
            del self.guards[partition]
            self._begin(partition, self._context.services.clock.now_ms())
        return bool(revoked) and bool(self.guards)

    async def _ask_once(self) -> dict[TopicPartition, ErrorCode]:
        # Imported here: most producers have no transactions, and a broker starts without it.
        from penstock.broker.producing.transaction_question import codes_in, question

        names = [partition.name for partition in self.guards]
        claim = self._claim
        answer = await self._context.services.coordinators.verify(
            question(*claim, names, verifies_only=not self._adds),
            self._context._replace(api_version=BROKER_VERSION),
        )
        if isinstance(answer, PenstockError):
            return dict.fromkeys(names, code_of(answer))
        return codes_in(answer, names)
