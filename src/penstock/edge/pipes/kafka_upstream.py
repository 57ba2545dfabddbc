"""`KafkaUpstream`: sends the records of a site to a cluster, Penstock or Apache Kafka 3.1 or later.

One transactional id for each pipe (`pipe.<site>.<pipe>`), and one group for each site
(`pipe.<site>`). A transaction appends batches and commits the offsets of the site after them.

Guarantees: `begin` fences every earlier sender of the same id and waits until its transaction has
ended, and `positions` other brokers that have committed positions of the site with other pipes, but
no pipe that sends here; the positions that are read afterwards are final. A sender whose positions
another broker has replaced meanwhile finds it within `CHECK_SECONDS` of sending. Batches of a
partition are sent in order, at most `IN_FLIGHT_MAX` at a time. Nothing is retried that could be
stored twice: after an error the caller begins again. It does not choose records:
`edge.pipes.up_runner` does.
"""

import asyncio
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final, TypeVar

from penstock.client import calls
from penstock.client.async_cluster import AsyncCluster
from penstock.client.coordinators import Coordinator, CoordinatorKind, find
from penstock.client.groups import group_calls
from penstock.client.records.batch_sender import ACKS_ALL, EXPLICIT_ADD_PRODUCE_VERSION_MAX
from penstock.client.transactions.producer_transactions import (
    VERSION_0,
    VERSION_2,
    VERSION_FEATURE,
    add_call,
    end_call,
    start_call,
)
from penstock.client.transactions.transaction_offsets import add_group_call, commit_call
from penstock.client.transactions.transaction_outcomes import OpenTransaction
from penstock.client.transport.addresses import Address
from penstock.client.transport.call import Call, raise_error
from penstock.client.transport.connection import AsyncConnection, connect
from penstock.client.transport.options import ClientOptions
from penstock.client.transport.versions import ASK_VERSIONS, ask_versions
from penstock.core.clock import Clock
from penstock.core.errors import AnswerLostError, BrokerAnswerError, ClientError, PenstockError
from penstock.core.types import TopicPartition
from penstock.edge.pipes.ports import CommittedOffset
from penstock.edge.pipes.site_batches import Outgoing, stamp
from penstock.edge.pipes.site_owner import SiteOwner, read_signed
from penstock.edge.pipes.up_ports import PartitionRefusedError, SiteFencedError
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.produce import PartitionProduceResponse

CALL_SECONDS_MAX: Final = 10.0
"""A call with all its retries."""
ANSWER_SECONDS_MAX: Final = 10.0
"""Longest wait for one answer."""
TRANSACTION_TIMEOUT_MS: Final = 60_000
"""The parent aborts the transaction of a sender that has stopped."""
FENCED_SECONDS_MAX: Final = 30.0
"""In a younger transaction an error of fencing has one cause only: another sender. The timeout of
an older one may have ended it."""
CHECK_SECONDS: Final = 15.0
"""While records are sent: between two looks whether another broker commits for the site."""
OTHERS_MAX: Final = 16
"""Other senders of the site that are fenced; each costs two calls."""
IN_FLIGHT_MAX: Final = 5
"""A broker remembers five batches of a producer."""
_FENCING: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
_LASTING: Final = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
)
"""Answers to a batch that another attempt does not change."""

Result = TypeVar("Result")


class KafkaUpstream:
    """`edge.pipes.up_ports.Upstream`."""

    def __init__(
        self,
        cluster: AsyncCluster,
        site: str,
        owner: SiteOwner,
        clock: Clock,
        pipes: Collection[str] = (),
    ) -> None:
        """`pipes`: names of pipes of this broker that send as this site; they are not fenced."""
        self._pipes = frozenset((owner.pipe, *pipes))
        self._cluster = cluster
        self._clock = clock
        self._group = f"pipe.{site}"
        self._name = f"pipe.{site}.{owner.pipe}"
        self._site = site
        self._owner = owner
        self._own: set[TopicPartition] = set()
        """Partitions whose positions were committed here."""
        self._check_at = 0.0
        self._transaction: OpenTransaction | None = None
        self._begun_at = 0.0
        self._sequences: dict[TopicPartition, int] = {}
        """Of the producer's epoch."""
        self._coordinators: dict[CoordinatorKind, Coordinator] = {}

    # --- Topics ---

    async def partition_counts(self, names: Collection[str]) -> Mapping[str, int]:
        """Return the partitions of these topics; missing topics are absent."""
        described = await self._cluster.describe(names)
        return {name: len(one.partitions) for name, one in described.items()}

    async def create(self, name: str, partition_count: int) -> None:
        """Create a topic; one that exists already is no error."""
        wanted = calls.NewTopic(name, partitions=partition_count)
        for one in await self._cluster.anywhere(
            calls.create([wanted], round(ANSWER_SECONDS_MAX * 1000))
        ):
            if one.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise_error(one.error_code, one.error_message, name)

    # --- Transactions ---

    async def begin(self) -> None:
        """Become the only sender of this site: abort the transaction of the one before."""
        versions = await self._cluster.anywhere(ask_versions(ASK_VERSIONS[1]))
        levels = {one.name: one.max_version_level for one in versions.finalized_features}
        is_second = levels.get(VERSION_FEATURE, 0) >= VERSION_2
        producer = await self._ask(
            CoordinatorKind.TRANSACTION, start_call(self._name, TRANSACTION_TIMEOUT_MS)
        )
        version = VERSION_2 if is_second else VERSION_0
        self._own.clear()
        self._check_at = self._clock.monotonic() + CHECK_SECONDS
        self._become(OpenTransaction(self._name, *producer, version))

    def _become(self, transaction: OpenTransaction) -> None:
        known = self._transaction
        if known is None or known[1:3] != transaction[1:3]:
            self._sequences.clear()
        self._transaction = transaction

    async def positions(self) -> Mapping[TopicPartition, CommittedOffset]:
        """Return the committed offsets of this site; fence other brokers that committed some."""
        found, owners = await self._committed(is_stable=True)
        others = [one for one in self._owner.others(owners.values()) if one.pipe not in self._pipes]
        for other in others[:OTHERS_MAX]:
            await self._fence(other)
        if others:
            found, _ = await self._committed(is_stable=True)
        return found

    async def _committed(
        self, *, is_stable: bool
    ) -> tuple[dict[TopicPartition, CommittedOffset], dict[TopicPartition, SiteOwner | None]]:
        """Return the committed offsets of this site, and the sender of each."""
        call = group_calls.fetch_offsets(self._group, is_stable=is_stable)
        found: dict[TopicPartition, CommittedOffset] = {}
        owners: dict[TopicPartition, SiteOwner | None] = {}
        for at, one in (await self._ask(CoordinatorKind.GROUP, call)).items():
            text, owners[at] = read_signed(one.metadata)
            found[at] = CommittedOffset(one.offset, one.leader_epoch, text)
        return found, owners

    async def _fence(self, other: SiteOwner) -> None:
        """End the transaction of a pipe of another broker, and refuse its next one."""
        name = f"pipe.{self._site}.{other.pipe}"
        call = start_call(name, TRANSACTION_TIMEOUT_MS)

        async def attempt() -> None:
            coordinator = await self._cluster.anywhere(find(CoordinatorKind.TRANSACTION, name))
            await self._cluster.at(coordinator.address, call)

        try:
            await self._cluster.repeat(attempt, repeatable=True)
        except BrokerAnswerError as error:
            if "AUTHORIZATION_FAILED" not in error.name:
                raise
            raise SiteFencedError(
                f"another broker sends as site {self._site!r}: {other}; this pipe may not replace "
                f"it (no WRITE on the transactional id {name})"
            ) from error

    async def _check_alone(self) -> None:
        """Raise `SiteFencedError` if another broker has replaced positions of this pipe."""
        now = self._clock.monotonic()
        if now < self._check_at or not self._own:
            return
        self._check_at = now + CHECK_SECONDS
        if (other := await self._other()) is not None:
            raise SiteFencedError(f"another broker sends as site {self._site!r}: {other}")

    async def _other(self) -> SiteOwner | None:
        """Return the broker that has replaced a position of this pipe; None if there is none."""
        _, owners = await self._committed(is_stable=False)
        others = self._owner.others(owners.get(at) for at in self._own)
        return others[0] if others else None

    async def transact(self, parts: Mapping[TopicPartition, Outgoing]) -> None:
        """Append the batches and commit the positions after them, all or nothing."""
        transaction = self._transaction
        assert transaction is not None, "`begin` comes first"
        await self._check_alone()
        self._begun_at = self._clock.monotonic()
        try:
            await self._append(transaction, parts)
            await self._commit(transaction, parts)
            self._become(await self._ask(CoordinatorKind.TRANSACTION, self._end(transaction)))
        except BrokerAnswerError as error:
            raise await self._fenced(error) from error
        self._own.update(parts)

    def _end(self, transaction: OpenTransaction) -> Call[OpenTransaction]:
        return end_call(transaction, commits=True)

    async def _append(
        self, transaction: OpenTransaction, parts: Mapping[TopicPartition, Outgoing]
    ) -> None:
        for at, part in parts.items():
            sequence = self._sequences.get(at, 0)
            for batch in part.batches:
                sequence = stamp(
                    batch, transaction.producer_id, transaction.producer_epoch, sequence
                )
            self._sequences[at] = sequence
        filled = [at for at, part in parts.items() if part.batches]
        if not filled:
            return
        if transaction.version == VERSION_0:
            await self._ask(CoordinatorKind.TRANSACTION, add_call(transaction, filled))
        # The first batches join the transaction, and must wait for the end of the one before.
        first = {at: parts[at].batches[0] for at in filled}
        await self._cluster.repeat(lambda: self._produce(transaction, first), repeatable=True)
        waves = max(len(parts[at].batches) for at in filled)
        for begin in range(1, waves, IN_FLIGHT_MAX):
            await self._produce_many(
                transaction,
                [
                    {at: parts[at].batches[n] for at in filled if n < len(parts[at].batches)}
                    for n in range(begin, min(waves, begin + IN_FLIGHT_MAX))
                ],
            )

    async def _produce_many(
        self, transaction: OpenTransaction, waves: list[dict[TopicPartition, bytearray]]
    ) -> None:
        """Send some batches of each partition at once; the requests leave in their order."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._outcome(transaction, wave)) for wave in waves]
        for task in tasks:
            if (error := task.result()) is not None:
                raise error

    async def _outcome(
        self, transaction: OpenTransaction, batches: Mapping[TopicPartition, bytearray]
    ) -> PenstockError | None:
        try:
            await self._produce(transaction, batches)
        except PenstockError as error:
            return error
        return None

    async def _produce(
        self, transaction: OpenTransaction, batches: Mapping[TopicPartition, bytearray]
    ) -> None:
        leaders = await self._cluster.leaders(batches)
        by_leader: dict[Address, dict[TopicPartition, bytearray]] = {}
        for at, batch in batches.items():
            by_leader.setdefault(leaders[at].address, {})[at] = batch
        asked = {to: self._call(transaction, some) for to, some in by_leader.items()}
        answers = await self._cluster.at_each(asked)
        for to, answer in zip(asked, answers, strict=True):
            if isinstance(answer, Exception):
                raise answer
            for at in by_leader[to]:
                _judge(at, answer.get(at))

    def _call(
        self, transaction: OpenTransaction, batches: Mapping[TopicPartition, bytearray]
    ) -> Call[dict[TopicPartition, PartitionProduceResponse]]:
        call = calls.send_batches(
            batches,
            acks=ACKS_ALL,
            timeout_ms=round(ANSWER_SECONDS_MAX * 1000),
            transactional_id=self._name,
        )
        if transaction.version == VERSION_0:
            return replace(call, version_max=EXPLICIT_ADD_PRODUCE_VERSION_MAX)
        return call

    async def _commit(
        self, transaction: OpenTransaction, parts: Mapping[TopicPartition, Outgoing]
    ) -> None:
        if transaction.version == VERSION_0:
            await self._ask(CoordinatorKind.TRANSACTION, add_group_call(transaction, self._group))
        offsets = {at: part.next_offset for at, part in parts.items()}
        texts = {at: self._owner.sign(part.mark.text()) for at, part in parts.items() if part.mark}
        await self._ask(
            CoordinatorKind.GROUP, commit_call(transaction, self._group, offsets, texts)
        )

    async def _fenced(self, error: BrokerAnswerError) -> ClientError | SiteFencedError:
        is_young = self._clock.monotonic() - self._begun_at < FENCED_SECONDS_MAX
        if ErrorCode(error.code) not in _FENCING or not is_young:
            return error
        other: SiteOwner | None = None
        with suppress(PenstockError):
            other = await self._other()
        who = "" if other is None else f": {other}"
        return SiteFencedError(f"another broker sends as site {self._site!r}{who} ({error.name})")

    # --- Coordinators ---

    async def _ask(self, kind: CoordinatorKind, call: Call[Result]) -> Result:
        """Send a call to the coordinator of the group, or of the transactional id."""
        key = self._group if kind is CoordinatorKind.GROUP else self._name

        async def attempt() -> Result:
            coordinator = self._coordinators.get(kind)
            if coordinator is None:
                coordinator = await self._cluster.anywhere(find(kind, key))
                self._coordinators[kind] = coordinator
            try:
                return await self._cluster.at(coordinator.address, call)
            except ClientError:
                self._coordinators.pop(kind, None)
                raise

        return await self._cluster.repeat(attempt, repeatable=True)

    async def close(self) -> None:
        """Close all connections."""
        await self._cluster.close()


def _judge(at: TopicPartition, answer: PartitionProduceResponse | None) -> None:
    if answer is None:
        raise AnswerLostError(f"the parent's answer does not name {at}")
    code = ErrorCode(answer.error_code)
    if code in _LASTING:
        raise PartitionRefusedError(at, code.name, answer.error_message or "")
    if code is not ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
        raise_error(answer.error_code, answer.error_message, str(at))


def open_upstream(
    options: ClientOptions, site: str, owner: SiteOwner, clock: Clock, pipes: Collection[str]
) -> KafkaUpstream:
    """Return the parent of an up pipe; nothing is sent yet.

    `pipes`: names of the pipes of this broker that send as this site.
    """

    async def opened(address: Address) -> AsyncConnection:
        return await connect(
            address,
            timeout_seconds=ANSWER_SECONDS_MAX,
            client_id=f"penstock-pipe-{owner.pipe}",
            security=options.security,
        )

    cluster = AsyncCluster(options.bootstrap, opened, timeout_seconds=CALL_SECONDS_MAX)
    return KafkaUpstream(cluster, site, owner, clock, pipes)
