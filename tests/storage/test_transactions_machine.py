"""A state machine: transactions in a log against a list, through flushes, crashes and cuts.

After each step: the last stable offset is the model's, the index gives exactly the aborted
transactions of any range, and a client that filters by it keeps the committed records.
"""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.core.errors import InvalidTransactionStateError
from penstock.storage.log.log_settings import LogSettings
from penstock.storage.log.log_types import AppendInfo
from penstock.testing.recording_disk import Fate, RecordingDisk
from tests.storage.logs import PARTITION, let_go, new_log, open_manager, producer_batch
from tests.storage.transactions import (
    Model,
    Written,
    append_verified,
    end,
    plain_batch,
    read_committed,
    transactional_batch,
)

SETTINGS = LogSettings(
    segment_bytes=700, index_interval_bytes=150, retention_ms=-1, retention_bytes=2_500
)
PRODUCERS = st.integers(1, 3)


class TransactionMachine(RuleBasedStateMachine):
    """Three producers, and records without a producer between theirs."""

    @initialize()
    def begin(self) -> None:
        self.disk = RecordingDisk()
        self.manager, self.log = new_log(self.disk, SETTINGS)
        self.model = Model()
        self.high_watermark = 0
        self.start = 0

    def _sequence(self, producer_id: int) -> int:
        entry = self.log.producers.entries.get(producer_id)
        return entry.batches[-1].last_sequence + 1 if entry and entry.batches else 0

    def _wrote(self, info: AppendInfo, **more: object) -> None:
        self.model.batches.append(Written(info.base_offset, info.last_offset, **more))  # type: ignore[arg-type]

    def _is_open(self, producer_id: int) -> bool:
        return any(
            producer == producer_id and marker < 0
            for producer, _, marker, _ in self.model.transactions()
        )

    @rule(producer_id=PRODUCERS, count=st.integers(1, 3), size=st.integers(0, 150))
    def write(self, producer_id: int, count: int, size: int) -> None:
        made = transactional_batch(producer_id, self._sequence(producer_id), count, size=size)
        if self._is_open(producer_id):
            info = self.log.append(made, leader_epoch=0)
        else:
            with pytest.raises(InvalidTransactionStateError):
                self.log.append(made, leader_epoch=0)
            info = append_verified(self.log, made)
        self._wrote(info, producer_id=producer_id, is_transactional=True)

    @rule(producer_id=PRODUCERS, commits=st.booleans())
    def end(self, producer_id: int, commits: bool) -> None:
        info = end(self.log, producer_id, commits=commits)
        self._wrote(info, producer_id=producer_id, commits=commits, is_transactional=True)

    @rule(size=st.integers(0, 150))
    def write_outside(self, size: int) -> None:
        self._wrote(self.log.append(plain_batch(size), leader_epoch=0))

    @rule(producer_id=PRODUCERS)
    def write_outside_as(self, producer_id: int) -> None:
        made = producer_batch(self._sequence(producer_id), producer_id=producer_id)
        if self._is_open(producer_id):
            with pytest.raises(InvalidTransactionStateError):
                self.log.append(made, leader_epoch=0)
        else:
            self._wrote(self.log.append(made, leader_epoch=0), producer_id=producer_id)

    @rule()
    def flush(self) -> None:
        self.manager.flushers[0].sync_now()
        self.high_watermark = self.log.durable_offset

    @rule()
    def checkpoint(self) -> None:
        self.manager.checkpoint_recovery_points()

    @rule()
    def retain(self) -> None:
        self.manager.run_retention(0)
        self.start = self.log.log_start_offset

    @precondition(lambda self: self.model.batches)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.log.end_offset), label="offset")
        self.manager.truncate_log(PARTITION, offset)
        self._found()

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        if clean:
            self.manager.close()
        else:
            let_go(self.manager)
        self.manager = open_manager(self.disk, SETTINGS)
        self._found()

    @rule(fate=st.sampled_from(list(Fate)), seed=st.integers(0, 1_000))
    def lose_power(self, fate: Fate, seed: int) -> None:
        self.disk = RecordingDisk(self.disk.after(len(self.disk.changes), fate, seed))
        self.manager = open_manager(self.disk, SETTINGS)
        log = self.manager.get_log(PARTITION)
        if log is None or log.log_start_offset > self.start:
            # Nothing was durable, not even the name of the directory or of the first segment.
            assert self.high_watermark == self.start
            self.begin()
            return
        self._found()

    def _found(self) -> None:
        log = self.manager.get_log(PARTITION)
        assert log is not None
        self.log = log
        self.start = log.log_start_offset
        self.model.forget_from(log.end_offset)
        self.high_watermark = log.durable_offset

    @invariant()
    def is_like_the_model(self) -> None:
        if not hasattr(self, "log"):
            return
        self.log.validate()
        log, model = self.log, self.model
        stable = log.first_undecided(self.high_watermark)
        assert stable == model.stable_offset(self.high_watermark, self.start)
        for offset in range(self.start, log.end_offset, 3):
            for limit in (offset + 1, offset + 4, log.end_offset):
                found = log.aborted_transactions(offset, limit, nowait=False)
                assert {entry[:3] for entry in found} == model.aborted(offset, limit)
        first = next(
            (entry.base_offset for entry in model.batches if entry.last_offset >= self.start), 0
        )
        kept = [offset for offset in read_committed(log, stable) if offset >= self.start]
        assert kept == model.committed(max(first, self.start), stable)


TransactionMachine.TestCase.settings = settings(
    max_examples=40,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestTransactionMachine = TransactionMachine.TestCase
