"""Random histories of one transactional id against a model that a person can check.

The model has the state that producers may rely on: the newest producer, whether its transaction is
open, and the promised outcome. The shard is reloaded from its bytes after every event (by the rig),
is crashed at any time, and from any prefix of its log.
"""

import itertools

import pytest
from hypothesis import HealthCheck, assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.coordinator.transactions.effects import WriteMarkers
from penstock.coordinator.transactions.states import LAWFUL_FROM, TransactionState
from penstock.coordinator.transactions.transaction import PRODUCER_EPOCH_MAX, Transaction
from penstock.protocol.error_codes import ErrorCode
from tests.coordinator.model_runs import EXAMPLES, IS_SEEDED
from tests.coordinator.transactions.rig import Rig

PARTITIONS = [("orders", 0), ("orders", 1), ("payments", 0)]
TIMEOUT_MS = 5_000
RETRIABLE = {ErrorCode.CONCURRENT_TRANSACTIONS}
REFUSALS = RETRIABLE | {
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TXN_STATE,
}


class TransactionMachine(RuleBasedStateMachine):
    """Producers of one transactional id, of which only the newest may win."""

    @initialize(near_the_end=st.booleans())
    def begin(self, near_the_end: bool) -> None:
        self.rig = Rig()
        self.rig.init(timeout_ms=TIMEOUT_MS)
        if near_the_end:
            self.rig.exhaust(PRODUCER_EPOCH_MAX - 3)
        now = self.now
        self.newest = (now.producer_id, now.producer_epoch)
        self.former: list[tuple[int, int]] = []
        self.is_open = False
        self.added: set[tuple[str, int]] = set()
        self.promised: list[bool] = []
        """The outcomes that were promised and whose markers are due."""
        self.seen = [now]
        self.kept: dict[int, tuple[str, int]] = {}
        """Adds that wait for markers, by ticket."""

    @property
    def now(self) -> Transaction:
        return self.rig.shard.transactions["t"]

    @property
    def is_settled(self) -> bool:
        return not self.promised and not self.rig.effects

    def succeed(self, newest: tuple[int, int]) -> None:
        if newest != self.newest:
            self.former.append(self.newest)
        self.newest = newest
        self.is_open = False
        self.added.clear()

    # --- Requests of producers ---

    @rule()
    def a_new_producer_starts(self) -> None:
        code, *newest = self.rig.init(timeout_ms=TIMEOUT_MS)
        if code is ErrorCode.CONCURRENT_TRANSACTIONS:
            if self.is_open:
                self.promised.append(False)
                self.is_open = False
                self.former.append(self.newest)
                self.newest = (-1, -1)
            assert self.promised
            return
        assert code is ErrorCode.NONE
        assert self.is_settled
        self.succeed((newest[0], newest[1]))

    @rule()
    def the_producer_goes_on_after_an_error(self) -> None:
        assume(self.newest[0] >= 0 and self.is_settled and not self.is_open)
        code, *newest = self.rig.init(timeout_ms=TIMEOUT_MS, expected=self.newest)
        assert code is ErrorCode.NONE
        self.succeed((newest[0], newest[1]))

    @rule(partition=st.sampled_from(PARTITIONS), version=st.sampled_from([3, 5]))
    def the_newest_adds(self, partition: tuple[str, int], version: int) -> None:
        assume(self.newest[0] >= 0 and not self.promised)
        (code,) = self.rig.add(self.newest, partition, version=version)
        assert code is ErrorCode.NONE
        self.is_open = True
        self.added.add(partition)

    @rule(partition=st.sampled_from(PARTITIONS))
    def the_newest_adds_while_markers_are_due(self, partition: tuple[str, int]) -> None:
        assume(self.newest[0] >= 0 and self.promised)
        ticket = self.rig.ask_add_without_answer(self.newest, partition)
        self.kept[ticket] = partition

    def settle_kept(self) -> None:
        """The adds that waited are answered once, and those that were taken count."""
        for ticket, partition in list(self.kept.items()):
            if ticket not in self.rig.replies:
                continue
            del self.kept[ticket]
            (code,) = self.rig.codes(ticket)
            if code is ErrorCode.NONE:
                self.is_open = True
                self.added.add(partition)
            else:
                assert code is ErrorCode.CONCURRENT_TRANSACTIONS

    @rule(partition=st.sampled_from(PARTITIONS))
    def the_newest_verifies(self, partition: tuple[str, int]) -> None:
        assume(self.newest[0] >= 0 and not self.promised)
        (code,) = self.rig.add(self.newest, partition, verify_only=True)
        is_in = self.is_open and partition in self.added
        assert code is (ErrorCode.NONE if is_in else ErrorCode.TRANSACTION_ABORTABLE)

    @rule(commits=st.booleans())
    def the_newest_ends(self, commits: bool) -> None:
        assume(self.newest[0] >= 0 and not self.promised)
        code, *newest = self.rig.end(self.newest, commits=commits)
        if commits and not self.is_open:
            assert code is ErrorCode.INVALID_TXN_STATE
            return
        assert code is ErrorCode.NONE
        self.promised.append(commits)
        self.succeed((newest[0], newest[1]))

    @rule(commits=st.booleans())
    def the_newest_ends_as_an_old_client(self, commits: bool) -> None:
        assume(self.newest[0] >= 0 and self.is_open and not self.promised)
        code, *_ = self.rig.end(self.newest, commits=commits, version=4)
        assert code is ErrorCode.NONE
        self.promised.append(commits)
        self.is_open = False
        self.added.clear()

    @rule(data=st.data(), commits=st.booleans())
    def a_zombie_tries(self, data: st.DataObject, commits: bool) -> None:
        assume(self.former)
        zombie = data.draw(st.sampled_from(self.former))
        assume(zombie != self.newest)
        records = len(self.rig.log)
        (code,) = self.rig.add(zombie, PARTITIONS[0])
        assert code in REFUSALS
        code, *_ = self.rig.end(zombie, commits=commits)
        # A zombie may get the outcome of its own transaction again; it changes nothing.
        assert code in REFUSALS | {ErrorCode.NONE}
        assert len(self.rig.log) == records

    # --- Events ---

    @rule(fails=st.booleans())
    def effects_end(self, fails: bool) -> None:
        waiting = [effect for effect in self.rig.effects if isinstance(effect, WriteMarkers)]
        written = len(self.rig.markers)
        self.rig.finish_effects(fails=fails)
        self.settle_kept()
        if fails or not waiting:
            return
        assert [marker.commits for marker in self.rig.markers[written:]] == self.promised
        self.promised.clear()
        assert not self.kept

    @rule(by_ms=st.sampled_from([100, TIMEOUT_MS, 20_000]))
    def time_passes(self, by_ms: int) -> None:
        was_open = self.is_open
        self.rig.pass_time(by_ms)
        self.settle_kept()
        assert not self.kept
        if was_open and self.now.state is TransactionState.PREPARE_ABORT:
            self.promised.append(False)
            self.is_open = False
            self.former.append(self.newest)
            self.newest = (-1, -1)
        elif was_open and self.rig.effects:
            # It waits for a producer id in order to be fenced.
            self.rig.finish_effects()
            self.promised.append(False)
            self.is_open = False
            self.former.append(self.newest)
            self.newest = (-1, -1)

    @rule()
    def the_coordinator_crashes(self) -> None:
        self.rig.start()
        self.kept.clear()

    # --- Invariants ---

    @invariant()
    def every_move_was_lawful(self) -> None:
        if self.now != self.seen[-1]:
            before = self.seen[-1]
            self.seen.append(self.now)
            if before.state is not self.now.state:
                # The rig may take several steps before this is looked at; the log has them all.
                self.every_step_in_the_log_was_lawful()
            rotated = self.now.producer_id != before.producer_id
            assert rotated or self.now.producer_epoch >= before.producer_epoch

    def every_step_in_the_log_was_lawful(self) -> None:
        states = [self.rig.reloaded(n)["t"].state for n in range(1, len(self.rig.log) + 1)]
        for before, after in itertools.pairwise(states):
            assert before in LAWFUL_FROM[after]

    @invariant()
    def an_open_transaction_has_what_was_added(self) -> None:
        if self.is_open:
            assert self.now.state is TransactionState.ONGOING
            assert {tuple(partition) for partition in self.now.partitions} == self.added

    @invariant()
    def a_promise_is_kept_until_its_markers_are_written(self) -> None:
        assert len(self.promised) <= 1
        assert self.now.is_ending == bool(self.promised)


TransactionMachine.TestCase.settings = settings(
    max_examples=EXAMPLES,
    derandomize=IS_SEEDED,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)


@pytest.mark.model
class TestTransactionModel(TransactionMachine.TestCase):  # type: ignore[misc, valid-type]
    pass
