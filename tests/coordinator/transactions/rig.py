"""A runtime for one transaction shard: appends, replays, checks, and carries out effects on demand.

It is a plain list of records where the real one has a log. Effects wait in `effects` until a test
says that they are done, so that every order can be played.
"""

from dataclasses import dataclass, field, replace

from penstock.coordinator.metadata_view import TopicView
from penstock.coordinator.shard import NOTHING, Asked, Outcome, SetTimer, StoredRecord
from penstock.coordinator.transactions.effects import NextProducerId, WriteMarkers
from penstock.coordinator.transactions.settings import TransactionSettings
from penstock.coordinator.transactions.shard import TransactionShard
from penstock.coordinator.transactions.transaction import Transaction, record_of
from penstock.core.errors import RequestTimedOutError
from penstock.protocol.codec import Message
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from penstock.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from penstock.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from penstock.protocol.stored.codec import decode_transaction_record, encode
from tests.coordinator.rig import NO_ROOM


class NoTopics:
    """A view of a cluster without topics: the shard needs none."""

    revision = 1

    def by_name(self, name: str) -> TopicView | None:
        return None

    def by_id(self, topic_id: object) -> TopicView | None:
        return None

    def names(self) -> tuple[str, ...]:
        return ()


@dataclass
class Rig:
    """One shard and everything around it."""

    settings: TransactionSettings = field(default_factory=TransactionSettings)
    now_ms: int = 1_000_000
    next_producer_id: int = 1000
    checks_each: bool = True
    """Whether all of the state is validated and compared with what the log gives after each event.

    With thousands of transactions a test does it once, by `check`.
    """

    def __post_init__(self) -> None:
        self.log: list[tuple[bytes, bytes | None]] = []
        self.replies: dict[int, Message] = {}
        self.effects: list[object] = []
        self.markers: list[WriteMarkers] = []
        self.timers: dict[object, int] = {}
        self._ticket = 0
        self.is_log_full = False
        """Whether the log takes nothing now."""
        self.start()

    # --- The runtime ---

    def start(self) -> None:
        """Load a shard from the log; what the one before waited for is lost."""
        self.effects.clear()
        self.timers.clear()
        self.shard = TransactionShard(self.settings, coordinator_epoch=7)
        for offset, (key, value) in enumerate(self.log):
            self._replay(self.shard, key, value, offset)
        self._do(self.shard.loaded(NoTopics(), self.now_ms))

    def reloaded(self, record_count: int | None = None) -> dict[str, Transaction]:
        """The state that a new shard gets from the log."""
        shard = TransactionShard(self.settings)
        for offset, (key, value) in enumerate(self.log[:record_count]):
            self._replay(shard, key, value, offset)
        shard.validate()
        return shard.transactions

    @staticmethod
    def _replay(shard: TransactionShard, key: bytes, value: bytes | None, offset: int) -> None:
        decoded = decode_transaction_record(key, value)
        assert decoded is not None
        shard.replay(StoredRecord(*decoded), None, offset)

    def _do(self, outcome: Outcome) -> None:
        is_refused = self.is_log_full and outcome.records != ()
        for record in () if is_refused else outcome.records:
            self.log.append(encode(record))
            self._replay(self.shard, *self.log[-1], len(self.log) - 1)
        rest = NOTHING if outcome.then is None else outcome.then(NO_ROOM if is_refused else None)
        if is_refused:
            assert outcome.is_revocable or outcome.then is not None, "a full disk costs the shard"
        else:
            self._carry_out(outcome)
        self._carry_out(rest)
        if self.checks_each:
            self.check()

    def check(self) -> None:
        """All of the state is valid, and the log gives the same."""
        self.shard.validate()
        assert self.reloaded() == self.shard.transactions

    def _carry_out(self, outcome: Outcome) -> None:
        for reply in outcome.replies:
            assert reply.ticket not in self.replies, "a ticket is answered once"
            self.replies[reply.ticket] = reply.response
        for timer in outcome.timers:
            if isinstance(timer, SetTimer):
                self.timers[timer.key] = self.now_ms + timer.delay_ms
            else:
                self.timers.pop(timer.key, None)
        self.effects.extend(outcome.effects)

    def ask(self, request: Message, version: int) -> int:
        """Hand in a request; its reply may come later."""
        self._ticket += 1
        asked = Asked(request, version, "client", "127.0.0.1")
        self._do(self.shard.handle(asked, self._ticket, self.now_ms))
        return self._ticket

    def finish_effects(self, *, fails: bool = False) -> None:
        """Carry out all effects that wait now; new ones wait for the next call."""
        waiting, self.effects = self.effects, []
        for effect in waiting:
            self.finish(effect, fails=fails)

    def finish(self, effect: object, *, fails: bool = False) -> None:
        """Carry out one effect."""
        result: object = None
        if fails:
            result = RequestTimedOutError("the test says so")
        elif isinstance(effect, NextProducerId):
            result = self.next_producer_id
            self.next_producer_id += 1
        elif isinstance(effect, WriteMarkers):
            self.markers.append(effect)
        self._do(self.shard.effect_done(effect, result, self.now_ms))

    def pass_time(self, by_ms: int) -> None:
        """Let time pass; each timer that is due fires when its time comes."""
        until_ms = self.now_ms + by_ms
        while self.timers:
            key, due_ms = min(self.timers.items(), key=lambda item: item[1])
            if due_ms > until_ms:
                break
            del self.timers[key]
            self.now_ms = max(self.now_ms, due_ms)
            self._do(self.shard.timer_fired(key, self.now_ms))
        self.now_ms = until_ms

    # --- Requests of clients ---

    def init(
        self,
        transactional_id: str = "t",
        *,
        timeout_ms: int = 60_000,
        expected: tuple[int, int] = (-1, -1),
        settle: bool = True,
    ) -> tuple[ErrorCode, int, int]:
        """InitProducerId; with `settle`, effects are carried out until it is answered."""
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=expected[0],
            producer_epoch=expected[1],
        )
        ticket = self.ask(request, 5)
        if settle and ticket not in self.replies:
            self.finish_effects()
        response = self.replies[ticket]
        assert isinstance(response, InitProducerIdResponse)
        return response.error_code, response.producer_id, response.producer_epoch

    def add(
        self,
        producer: tuple[int, int],
        *partitions: tuple[str, int],
        transactional_id: str = "t",
        version: int = 5,
        verify_only: bool = False,
    ) -> list[ErrorCode]:
        """AddPartitionsToTxn, one code for each partition."""
        request = _add_request(producer, partitions, transactional_id, verify_only=verify_only)
        return self.codes(self.ask(request, version))

    def ask_add_without_answer(
        self, producer: tuple[int, int], *partitions: tuple[str, int]
    ) -> int:
        """AddPartitionsToTxn that has to wait for markers."""
        ticket = self.ask(_add_request(producer, partitions, "t"), 5)
        assert ticket not in self.replies
        return ticket

    def ask_add_refused(self, producer: tuple[int, int], *partitions: tuple[str, int]) -> int:
        """AddPartitionsToTxn that cannot be written."""
        return self.ask(_add_request(producer, partitions, "t"), 5)

    def ask_end_refused(self, producer: tuple[int, int]) -> int:
        """EndTxn that cannot be written."""
        return self.ask_end_without_answer(producer)

    def codes(self, ticket: int) -> list[ErrorCode]:
        """The answer to AddPartitionsToTxn."""
        response = self.replies[ticket]
        assert isinstance(response, AddPartitionsToTxnResponse)
        return [
            result.partition_error_code
            for topic in response.results_by_transaction[0].topic_results
            for result in topic.results_by_partition
        ]

    def end(
        self,
        producer: tuple[int, int],
        *,
        commits: bool,
        transactional_id: str = "t",
        version: int = 5,
        settle: bool = True,
    ) -> tuple[ErrorCode, int, int]:
        """EndTxn; with `settle`, a new producer id is drawn if it waits for one."""
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer[0],
            producer_epoch=producer[1],
            committed=commits,
        )
        ticket = self.ask(request, version)
        if settle and ticket not in self.replies:
            self.finish_effects()
        response = self.replies[ticket]
        assert isinstance(response, EndTxnResponse)
        return response.error_code, response.producer_id, response.producer_epoch

    def state(self, transactional_id: str = "t") -> str:
        """The name of the state."""
        return self.shard.transactions[transactional_id].state.name

    def exhaust(self, epoch: int, transactional_id: str = "t") -> None:
        """As if the producer had been through all epochs up to this one."""
        now = self.shard.transactions[transactional_id]
        record = record_of(transactional_id, replace(now, producer_epoch=epoch))
        self._do(Outcome(records=(record,)))

    def ask_init_without_answer(self, transactional_id: str = "t") -> int:
        """InitProducerId that has to wait for a producer id."""
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=60_000
        )
        ticket = self.ask(request, 5)
        assert ticket not in self.replies
        return ticket

    def ask_end_without_answer(self, producer: tuple[int, int]) -> int:
        """EndTxn that has to wait for a producer id."""
        request = EndTxnRequest(
            transactional_id="t",
            producer_id=producer[0],
            producer_epoch=producer[1],
            committed=True,
        )
        ticket = self.ask(request, 5)
        assert ticket not in self.replies
        return ticket


def _add_request(
    producer: tuple[int, int],
    partitions: tuple[tuple[str, int], ...],
    transactional_id: str,
    *,
    verify_only: bool = False,
) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        transactions=(
            AddPartitionsToTxnTransaction(
                transactional_id=transactional_id,
                producer_id=producer[0],
                producer_epoch=producer[1],
                verify_only=verify_only,
                topics=tuple(
                    AddPartitionsToTxnTopic(name=topic, partitions=(partition,))
                    for topic, partition in partitions
                ),
            ),
        )
    )
