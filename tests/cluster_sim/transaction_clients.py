"""Transactional producers: each transaction sends values to several keys and is ended.

A transaction is `ok` when the coordinator acknowledged its commit; `fail` when its commit was never
sent, or was refused at the first attempt; else `info`. A failed one must never be visible, an
acknowledged one wholly. Some are aborted, some are abandoned: the next InitProducerId, or the
timeout, aborts these.

`Copier` also polls a key and commits its position within the transaction. No value may be consumed
by two committed transactions. It often goes on with another transactional id, as the next owner of
a partition does: InitProducerId does not wait for the transaction in doubt then, only the read of
stable positions does.
"""

from collections.abc import Mapping
from typing import Final

from penstock.client import calls
from penstock.client.coordinators import CoordinatorKind
from penstock.client.transactions.producer_transactions import VERSION_2
from penstock.client.transactions.producer_transactions import end_call as end_transaction
from penstock.client.transactions.producer_transactions import start_call as start_transactions
from penstock.client.transactions.transaction_outcomes import REFUSALS, OpenTransaction
from penstock.client.transport.call import Call, raise_error
from penstock.core.errors import (
    BrokerAnswerError,
    BrokerUnreachableError,
    ClientError,
    PeerError,
    PenstockError,
)
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import txn_offset_commit
from penstock.records.builder import build_batch
from penstock.records.record import Record
from tests.checker.history import Action, Commit, Poll, Send
from tests.cluster_sim.clients import ACKS_ALL, PRODUCE_TIMEOUT_MS, CommittedConsumer
from tests.cluster_sim.group_clients import read_positions

TRANSACTION_TIMEOUT_MS: Final = 6_000
ATTEMPT_SECONDS_MAX: Final = 5.0
END_SECONDS_MAX: Final = 12.0
ABORT_SHARE: Final = 0.2
ABANDON_SHARE: Final = 0.05
CRASH_SHARE: Final = 0.4
"""Of the ends in doubt: the producer does not find out."""
OTHER_OWNER_SHARE: Final = 0.7
HANDED_OVER_SHARE: Final = 0.7
"""Of the acknowledged transactions of a copier: the next owner begins at once."""
COPIER_GROUP: Final = "copier"

NOT_ENDED: Final = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.CONCURRENT_TRANSACTIONS}
)
"""Codes of an end that was certainly not executed by this attempt; see `group_clients.REFUSED`."""


class TransactionalProducer(CommittedConsumer):
    """One transaction after the other."""

    _identity: OpenTransaction | None = None

    @property
    def transactional_id(self) -> str:
        """The transactional id of the next transaction."""
        return self.name

    async def run(self) -> None:
        """Execute transactions until the end."""
        while not self.is_over:
            await self.pause(0.5)
            if self._identity is None and not await self._begin():
                continue
            await self._transaction()

    async def _begin(self) -> bool:
        call = start_transactions(self.transactional_id, TRANSACTION_TIMEOUT_MS)
        try:
            found = await self.ask(CoordinatorKind.TRANSACTION, self.transactional_id, call)
            await self.begun()
        except PenstockError:
            return False
        self._identity = OpenTransaction(self.transactional_id, *found, VERSION_2)
        return True

    async def begun(self) -> None:
        """The transactional id has no open transaction."""

    async def consume(self) -> tuple[dict[int, int], list[Action]]:
        """Return the positions that the transaction commits, and the polls before it."""
        return {}, []

    def consumed(self, positions: Mapping[int, int]) -> None:
        """The transaction with these positions is committed."""

    async def _transaction(self) -> None:
        keys = [self.random.choice(self.output_keys) for _ in range(self.random.randint(1, 3))]
        sends = [Send(key, self.recorder.new_value()) for key in keys]
        self.recorder.add(self.process, "invoke", "txn", sends)
        positions, actions = await self.consume()
        is_written = await self._write(sends, actions) and await self._send_positions(positions)
        if positions:
            actions.append(Commit(positions))
        kind = "fail"
        if is_written and self.random.random() >= ABORT_SHARE:
            kind = await self._commit()
        elif self.random.random() >= ABANDON_SHARE:
            await self._end(commits=False)
        else:
            self._identity = None
        unsent = sends[sum(isinstance(action, Send) for action in actions) :]
        done = (*actions, *unsent)
        if kind == "ok":
            self.consumed(positions)
            self.recorder.add(self.process, "ok", "txn", done)
            return
        self.recorder.add(self.process, "fail" if kind == "fail" else "info", "txn", done)
        if kind == "info":
            self.process = self.recorder.new_process()

    @property
    def output_keys(self) -> list[int]:
        """The keys of the sends."""
        return list(self.keys)

    # --- Writing ---

    async def _write(self, sends: list[Send], actions: list[Action]) -> bool:
        """Send each value in order; return whether all were acknowledged."""
        sequences: dict[int, int] = {}
        for send in sends:
            offset = await self._send(send, sequences.get(send.key, 0))
            if offset is None:
                return False
            sequences[send.key] = sequences.get(send.key, 0) + 1
            actions.append(Send(send.key, send.value, offset))
        return True

    async def _send(self, send: Send, sequence: int) -> int | None:
        """Send a value until it is acknowledged; None if the transaction must be aborted."""
        assert self._identity is not None
        batch = build_batch(
            [Record(value=b"%d" % send.value, timestamp_ms=1_700_000_000_000)],
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.producer_epoch,
            base_sequence=sequence,
            transactional=True,
        )
        at = self.keys[send.key]
        call = calls.send_batches(
            {at: batch},
            acks=ACKS_ALL,
            timeout_ms=PRODUCE_TIMEOUT_MS,
            transactional_id=self.transactional_id,
        )
        deadline = self.loop.time() + ATTEMPT_SECONDS_MAX
        while self.loop.time() < deadline:
            try:
                leader = (await self.cluster.leaders([at]))[at]
                answer = (await self.cluster.at(leader.address, call))[at]
                code = ErrorCode(answer.error_code)
                if code is ErrorCode.NONE and answer.base_offset >= 0:
                    return answer.base_offset
                if not code.retriable:
                    return None
            except (ClientError, PeerError):
                pass
            self.cluster._view.forget_topics()
            await self.pause(0.3)
        return None

    async def _send_positions(self, positions: Mapping[int, int]) -> bool:
        """Add positions of the group to the transaction; return whether that was acknowledged."""
        if not positions:
            return True
        assert self._identity is not None
        call = add_positions(
            self._identity, {self.keys[key]: position for key, position in positions.items()}
        )
        deadline = self.loop.time() + ATTEMPT_SECONDS_MAX
        while self.loop.time() < deadline:
            try:
                await self.ask(CoordinatorKind.GROUP, COPIER_GROUP, call)
                return True
            except BrokerAnswerError as error:
                if not ErrorCode(error.code).retriable:
                    return False
            except PenstockError:
                pass
            await self.pause(0.3)
        return False

    # --- The end ---

    async def _commit(self) -> str:
        return await self._end(commits=True)

    async def _end(self, *, commits: bool) -> str:
        """End the transaction; return the type of its completion. An abort always fails it."""
        assert self._identity is not None
        name, call = self.transactional_id, end_transaction(self._identity, commits=commits)
        is_in_doubt = False
        deadline = self.loop.time() + END_SECONDS_MAX
        while self.loop.time() < deadline:
            try:
                self._identity = await self.ask(CoordinatorKind.TRANSACTION, name, call)
                return "ok" if commits else "fail"
            except BrokerAnswerError as error:
                code = ErrorCode(error.code)
                if code in REFUSALS or not code.retriable:
                    break
                is_in_doubt = is_in_doubt or code not in NOT_ENDED
            except BrokerUnreachableError:
                pass
            except PenstockError:
                is_in_doubt = True
            if is_in_doubt and self.random.random() < CRASH_SHARE:
                break
            await self.pause(0.4)
        self._identity = None
        return "info" if commits and is_in_doubt else "fail"


class Copier(TransactionalProducer):
    """Consumes the first key and sends to the others, in one transaction."""

    _positions: dict[int, int] | None = None
    _owners = 0

    @property
    def transactional_id(self) -> str:
        """The transactional id of the present owner."""
        return f"{self.name}-{self._owners % 3}"

    async def _begin(self) -> bool:
        if self.random.random() < OTHER_OWNER_SHARE:
            self._owners += 1
        return await super()._begin()

    @property
    def input_key(self) -> int:
        """The key that it consumes."""
        return min(self.keys)

    @property
    def output_keys(self) -> list[int]:
        """The other keys."""
        return [key for key in self.keys if key != self.input_key]

    async def begun(self) -> None:
        """Read the position of the group, which transactions before have committed."""
        key = self.input_key
        probe = self.keys[self.output_keys[0]]
        found = await read_positions(self, COPIER_GROUP, probe, {key: self.keys[key]})
        self._positions = {key: found[key] or 0}
        self.process = self.recorder.new_process()
        self.recorder.add(self.process, "invoke", "subscribe", keys=[key])
        self.recorder.add(self.process, "ok", "subscribe", keys=[key])

    async def consume(self) -> tuple[dict[int, int], list[Action]]:
        """Poll from the position of the group."""
        assert self._positions is not None
        key = self.input_key
        read = await self.fetch(key, self._positions[key])
        if read is None or not read.records:
            return {}, []
        return {key: read.next_offset}, [Poll({key: read.records})]

    def consumed(self, positions: Mapping[int, int]) -> None:
        """Go on behind the committed positions."""
        assert self._positions is not None
        self._positions.update(positions)
        if positions and self.random.random() < HANDED_OVER_SHARE:
            self._identity = None


def add_positions(
    transaction: OpenTransaction, positions: Mapping[TopicPartition, int]
) -> Call[None]:
    """Commit positions of one topic within a transaction, which adds the group to it."""
    request = txn_offset_commit.TxnOffsetCommitRequest(
        transactional_id=transaction.transactional_id,
        group_id=COPIER_GROUP,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=(
            txn_offset_commit.TxnOffsetCommitRequestTopic(
                name=next(iter(positions)).topic,
                partitions=tuple(
                    txn_offset_commit.TxnOffsetCommitRequestPartition(
                        partition_index=at.partition,
                        committed_offset=position,
                        committed_metadata="",
                    )
                    for at, position in positions.items()
                ),
            ),
        ),
    )

    def read(answer: txn_offset_commit.TxnOffsetCommitResponse) -> None:
        for topic in answer.topics:
            for part in topic.partitions:
                raise_error(part.error_code, None, transaction.transactional_id)

    return Call(request, txn_offset_commit.TxnOffsetCommitResponse, read)
