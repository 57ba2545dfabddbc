"""A state machine: a log against a list, through flushes, crashes, truncation and retention."""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from penstock.core.errors import OutOfOrderSequenceError
from penstock.records.batch import iterate_headers
from penstock.storage.log.log_settings import LogSettings
from penstock.testing.recording_disk import Fate, RecordingDisk
from tests.storage.logs import (
    PARTITION,
    Batch,
    batch,
    let_go,
    new_log,
    open_manager,
    producer_batch,
    read_all,
)

SETTINGS = LogSettings(
    segment_bytes=600, index_interval_bytes=150, retention_ms=-1, retention_bytes=1_500
)


class LogMachine(RuleBasedStateMachine):
    """The model: batches in order, how many are acknowledged, where the log starts."""

    @initialize()
    def begin(self) -> None:
        self.disk = RecordingDisk()
        self.manager, self.log = new_log(self.disk, SETTINGS)
        self.batches: list[bytes] = []
        self.ends: list[int] = []
        self.durable = 0
        self.start = 0
        self.sequence = 0
        self.epoch = 0

    def _appended(self, made: Batch) -> None:
        info = self.log.append(made, leader_epoch=self.epoch)
        assert info.base_offset == (self.ends[-1] if self.ends else 0)
        self.batches.append(bytes(made.buffer))
        self.ends.append(info.last_offset + 1)

    @rule(count=st.integers(1, 4), size=st.integers(0, 200))
    def append(self, count: int, size: int) -> None:
        self._appended(batch(count, size=size))

    @rule(count=st.integers(1, 3))
    def append_idempotent(self, count: int) -> None:
        self._appended(producer_batch(self.sequence, count))
        self.sequence += count

    @rule(gap=st.integers(1, 5))
    def append_out_of_order(self, gap: int) -> None:
        if 7 in self.log.producers.entries and self.log.producers.entries[7].batches:
            try:
                self.log.append(producer_batch(self.sequence + gap), leader_epoch=self.epoch)
            except OutOfOrderSequenceError:
                return
            raise AssertionError("a gap was taken")

    @rule()
    def change_leader(self) -> None:
        self.epoch += 1

    @rule()
    def flush(self) -> None:
        self.manager.flushers[0].sync_now()
        self.durable = self.log.end_offset
        assert self.log.durable_offset == self.durable

    @rule()
    def checkpoint(self) -> None:
        self.manager.checkpoint_recovery_points()

    @rule()
    def retain(self) -> None:
        self.manager.run_retention(0)
        assert self.log.log_start_offset <= self.durable or not self.batches
        self.start = self.log.log_start_offset

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.log.end_offset), label="offset")
        self.manager.truncate_log(PARTITION, offset)
        self._forget_from(self.log.end_offset)
        assert offset - 4 <= self.log.end_offset <= offset

    def _forget_from(self, end_offset: int) -> None:
        """Bring the model back to what is left."""
        kept = sum(end <= end_offset for end in self.ends)
        del self.batches[kept:]
        del self.ends[kept:]
        self.durable = min(self.durable, end_offset)
        entry = self.log.producers.entries.get(7)
        self.sequence = entry.batches[-1].last_sequence + 1 if entry and entry.batches else 0

    @rule(clean=st.booleans())
    def stop_and_start(self, clean: bool) -> None:
        if clean:
            self.manager.close()
        else:
            let_go(self.manager)
        self.manager = open_manager(self.disk, SETTINGS)
        self._found()
        assert self.log.end_offset == (self.ends[-1] if self.ends else self.start)
        self.durable = self.log.end_offset

    @rule(fate=st.sampled_from(list(Fate)), seed=st.integers(0, 1_000))
    def lose_power(self, fate: Fate, seed: int) -> None:
        self.disk = RecordingDisk(self.disk.after(len(self.disk.changes), fate, seed))
        self.manager = open_manager(self.disk, SETTINGS)
        if self.manager.get_log(PARTITION) is None:
            assert self.durable == 0
            self.begin()
            return
        self._found()
        assert self.log.end_offset >= self.durable
        self._forget_from(self.log.end_offset)
        self.durable = self.log.end_offset

    def _found(self) -> None:
        log = self.manager.get_log(PARTITION)
        assert log is not None
        self.log = log
        # While nothing is durable no name is: a power cut may leave a later segment alone.
        assert self.log.log_start_offset <= self.start or self.durable <= self.start
        self.start = self.log.log_start_offset
        self.epoch = max(self.epoch, log.latest_epoch)

    @invariant()
    def is_like_the_model(self) -> None:
        if not hasattr(self, "log"):
            return
        self.log.validate()
        data = read_all(self.log)
        found = [
            data[position : position + header.size_bytes]
            for position, header in iterate_headers(data)
        ]
        assert found == (self.batches[len(self.batches) - len(found) :] if found else [])
        if self.ends and self.start < self.ends[-1]:
            assert found, "the log is empty"
            assert next(iterate_headers(data))[1].base_offset <= self.start


LogMachine.TestCase.settings = settings(
    max_examples=15,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestLogMachine = LogMachine.TestCase
