"""`Work`: every received record of one consumer, from its arrival until it is done. Pure.

Events come in (records, ends of calls, revoked partitions), decisions go out (calls to start,
records to write, partitions to pause, progress to commit). The caller does the IO and passes the
time and the random draws.

Guarantees:
- At most `concurrency` calls run. Records of one lane (a key or a partition) run one after another
  in the order of their offsets, until one of them is moved to a retry topic.
- A record is done when its handler returned, it was skipped, or its copy is acknowledged by the
  broker. Positions never pass a record that is not done (`partition_work`).
- After a revocation no result of the partition counts, and no position of it is returned.
- Memory is bounded: partitions are paused at the limits of records and bytes. Records of the retry
  topic have limits of their own, so that waiting retries do not stop the main topic.

A batch that fails is repeated record by record: one bad record does not take its neighbours along.
"""

import heapq
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count

from penstock.consumers.consumer_record import ConsumerRecord
from penstock.consumers.delivery import dead_letters
from penstock.consumers.delivery.deliveries import Acknowledgement, Call, Progress, Settled
from penstock.consumers.delivery.failure_verdicts import Verdict, VerdictKind, judge
from penstock.consumers.delivery.memory_budget import MemoryBudget
from penstock.consumers.delivery.partition_work import Entry, Lane, PartitionWork
from penstock.consumers.handling import ErrorAction
from penstock.consumers.limits import WINDOW_RECORDS_MAX
from penstock.consumers.options import ConsumerOptions, Mode, Order
from penstock.core.types import TopicPartition


@dataclass(slots=True, eq=False)
class Work:
    """The state of one consumer."""

    options: ConsumerOptions
    is_stopping: bool = False
    running: int = 0
    _partitions: dict[TopicPartition, PartitionWork] = field(default_factory=dict)
    _listed: deque[PartitionWork] = field(default_factory=deque)
    _timers: list[tuple[float, int, Lane | Entry]] = field(default_factory=list)
    _numbers: "count[int]" = field(default_factory=count)
    _settled: list[Settled] = field(default_factory=list)
    _main: MemoryBudget = field(init=False)
    _retries: MemoryBudget = field(init=False)

    def __post_init__(self) -> None:
        limits = (self.options.buffered_records_max, self.options.buffered_bytes_max)
        self._main, self._retries = MemoryBudget(*limits), MemoryBudget(*limits)

    # --- Partitions ---

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Begin with partitions; records of others are ignored in fanout mode."""
        for at in partitions:
            if at not in self._partitions:
                self._partitions[at] = PartitionWork(at, at.topic == self.options.retry_topic)

    def revoke(self, partitions: Iterable[TopicPartition]) -> None:
        """Start no more calls for these partitions; running calls may still finish."""
        for at in partitions:
            if (home := self._partitions.get(at)) is not None:
                home.is_revoking = True

    def is_active(self, partitions: Iterable[TopicPartition]) -> bool:
        """Return whether calls or writes of these partitions are under way."""
        homes = (self._partitions.get(at) for at in partitions)
        return any(home is not None and home.active > 0 for home in homes)

    def forget(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Drop these partitions; return the positions to commit if they are still owned."""
        positions = {}
        for at in partitions:
            home = self._partitions.pop(at, None)
            if home is None:
                continue
            if home.position is not None:  # also if a commit of it is under way
                positions[at] = home.position
            self._drop(home)
        return positions

    def _drop(self, home: PartitionWork) -> None:
        home.is_gone = True
        for lane in home.lanes.values():
            for entry in lane.entries:
                self._budget(home).remove(entry.size_bytes)
            lane.entries.clear()
        home.lanes.clear()
        home.ready.clear()

    @property
    def assigned(self) -> Collection[TopicPartition]:
        """Return the assigned partitions."""
        return self._partitions.keys()

    def paused(self) -> frozenset[TopicPartition]:
        """Return the partitions that must not be fetched now."""
        return frozenset(
            at
            for at, home in self._partitions.items()
            if self.is_stopping
            or home.is_revoking
            or self._budget(home).is_full
            or home.window >= WINDOW_RECORDS_MAX
        )

    # --- Records ---

    def receive(self, records: Iterable[ConsumerRecord], now_seconds: float, now_ms: int) -> None:
        """Add records in the order of the log."""
        for record in records:
            if self.options.mode is Mode.QUEUE:
                self.assign([record.at])
            home = self._partitions.get(record.at)
            if home is None or home.is_revoking:
                continue
            if home.next_offset is not None and record.offset < home.next_offset:
                home = self._rewound(home)
            self._add(home, record, now_seconds, now_ms)

    def _rewound(self, home: PartitionWork) -> PartitionWork:
        """Begin the partition again: its log was truncated or recreated."""
        self._drop(home)
        self._partitions[home.at] = PartitionWork(home.at, home.is_retry)
        return self._partitions[home.at]

    def _add(
        self, home: PartitionWork, record: ConsumerRecord, now_seconds: float, now_ms: int
    ) -> None:
        offset, due_seconds = record.offset, now_seconds
        size_bytes = record.size_bytes
        if home.is_retry and (origin := dead_letters.read_origin(record.headers)) is not None:
            record = dead_letters.original(record, origin)
            # A clock or a program that is wrong does not hold the partition for ever.
            retry = self.options.retry
            pause_seconds = max(0, (origin.due_ms or 0) - now_ms) / 1_000
            due_seconds += min(pause_seconds, retry.window_seconds(retry.attempts))
        lane = self._lane(home, record, offset)
        entry = Entry(record, offset, home, lane, size_bytes, record.attempt, due_seconds)
        entry.is_retried = record.attempt > 1
        if self.options.mode is Mode.FANOUT:
            home.receive(offset)  # a share group has no positions
        lane.entries.append(entry)
        self._budget(home).add(size_bytes)
        self._schedule(lane, now_seconds)

    def _lane(self, home: PartitionWork, record: ConsumerRecord, offset: int) -> Lane:
        if self.options.mode is Mode.QUEUE or home.is_retry:
            key: object = offset
        elif self.options.order is Order.PARTITION:
            key = None
        else:
            key = offset if record.key is None else record.key
        lane = home.lanes.get(key)
        if lane is None:
            lane = home.lanes[key] = Lane(key)
        return lane

    def _schedule(self, lane: Lane, now_seconds: float) -> None:
        """Put an idle lane into the ready list, or set a timer for its first record."""
        if lane.is_busy or not lane.entries:
            return
        lane.is_busy = True
        first = lane.entries[0]
        if first.due_seconds > now_seconds:
            heapq.heappush(self._timers, (first.due_seconds, next(self._numbers), lane))
            return
        first.home.ready.append(lane)
        if not first.home.is_listed:
            first.home.is_listed = True
            self._listed.append(first.home)

    # --- Calls ---

    def start(self, now_seconds: float) -> list[Call]:
        """Return the calls that begin now; the caller reports the end of each."""
        self._expire(now_seconds)
        calls: list[Call] = []
        while self._listed and not self.is_stopping and self.running < self.options.concurrency:
            home = self._listed.popleft()
            home.is_listed = False
            if home.is_gone or home.is_revoking or not home.ready:
                continue
            call = Call(tuple(self._take(home)))
            if home.ready:
                home.is_listed = True
                self._listed.append(home)
            self.running += 1
            home.active += len(call.entries)
            calls.append(call)
        return calls

    def _take(self, home: PartitionWork) -> list[Entry]:
        """Take the first ready record, and for a batch the fresh records behind it."""
        taken: list[Entry] = []
        while home.ready and len(taken) < self.options.batch:
            lane = home.ready[0]
            if taken and lane.entries[0].is_retried:
                break
            home.ready.popleft()
            while lane.entries and len(taken) < self.options.batch:
                if taken and lane.entries[0].is_retried:
                    break
                taken.append(lane.entries.popleft())
                lane.taken += 1
                if taken[-1].is_retried:
                    return taken
        return taken

    def succeed(self, call: Call, now_seconds: float) -> None:
        """Note that the handler returned: its records are done."""
        self._end(call)
        if not call.is_gone:
            for entry in call.entries:
                self._finish(entry, Acknowledgement.ACCEPT, now_seconds)

    def fail(
        self, call: Call, action: ErrorAction | None, draw: float, now_seconds: float
    ) -> Verdict | None:
        """Return the verdict on a failed call; None if its partition was revoked.

        After RETRY_TOPIC and DEAD_LETTER the caller writes every record of the call and reports
        each with `written`. After STOP it stops the consumer.
        """
        self._end(call)
        if call.is_gone:
            return None
        verdict = judge(self.options, call.attempt, action, draw)
        kind = verdict.kind
        if kind is VerdictKind.RETRY_IN_PLACE:
            self._retry(call, now_seconds + verdict.pause_seconds, now_seconds)
        elif kind is VerdictKind.RELEASE:
            for entry in call.entries:
                self._hold(entry, now_seconds + verdict.pause_seconds)
        elif kind is VerdictKind.STOP:
            self.is_stopping = True
            for entry in call.entries:
                self._give_back(entry)
        elif kind in (VerdictKind.RETRY_TOPIC, VerdictKind.DEAD_LETTER):
            call.entries[0].home.active += len(call.entries)
        else:
            is_reject = kind is VerdictKind.REJECT
            outcome = Acknowledgement.REJECT if is_reject else Acknowledgement.ACCEPT
            for entry in call.entries:
                self._finish(entry, outcome, now_seconds)
        return verdict

    def written(self, entry: Entry, now_seconds: float) -> None:
        """Note that the copy of a failed record is acknowledged: the record is done."""
        entry.home.active -= 1
        if entry.home.is_gone:
            self._budget(entry.home).remove(entry.size_bytes)
        else:
            self._finish(entry, Acknowledgement.ACCEPT, now_seconds)

    def not_written(self, entry: Entry) -> None:
        """Note that the copy of a failed record could not be written: the record is not done."""
        entry.home.active -= 1
        self._give_back(entry)

    def abandon(self, call: Call) -> None:
        """Note that a call was cancelled: its records are not done."""
        self._end(call)
        if not call.is_gone:
            for entry in call.entries:
                self._give_back(entry)

    def _end(self, call: Call) -> None:
        self.running -= 1
        home = call.entries[0].home
        home.active -= len(call.entries)
        if home.is_gone:
            for entry in call.entries:
                self._budget(home).remove(entry.size_bytes)

    def _retry(self, call: Call, due_seconds: float, now_seconds: float) -> None:
        """Put the records back in front of their lanes, each alone from now."""
        for entry in reversed(call.entries):
            entry.is_retried = True
            entry.attempt += 1
            entry.due_seconds = due_seconds
            entry.record = _with_attempt(entry.record, entry.attempt)
            entry.lane.entries.appendleft(entry)
            entry.lane.taken -= 1
        for lane in {id(entry.lane): entry.lane for entry in call.entries}.values():
            assert lane.taken == 0
            lane.is_busy = False
            self._schedule(lane, now_seconds)

    def _finish(self, entry: Entry, outcome: Acknowledgement, now_seconds: float) -> None:
        home = entry.home
        self._budget(home).remove(entry.size_bytes)
        if self.options.mode is Mode.FANOUT:
            home.finish(entry.offset)
        else:
            self._settled.append(Settled(home.at, entry.offset, outcome))
        self._free(entry.lane, home, now_seconds)

    def _free(self, lane: Lane, home: PartitionWork, now_seconds: float) -> None:
        lane.taken -= 1
        if lane.taken > 0:
            return
        lane.is_busy = False
        if lane.entries:
            self._schedule(lane, now_seconds)
        elif home.lanes.get(lane.key) is lane:
            del home.lanes[lane.key]

    def _hold(self, entry: Entry, due_seconds: float) -> None:
        heapq.heappush(self._timers, (due_seconds, next(self._numbers), entry))

    def _give_back(self, entry: Entry) -> None:
        """Leave a record undone: released in queue mode, below the position in fanout mode."""
        self._budget(entry.home).remove(entry.size_bytes)
        if self.options.mode is Mode.QUEUE:
            self._settled.append(Settled(entry.home.at, entry.offset, Acknowledgement.RELEASE))

    def _budget(self, home: PartitionWork) -> MemoryBudget:
        return self._retries if home.is_retry else self._main

    # --- Time, progress, stop ---

    def _expire(self, now_seconds: float) -> None:
        while self._timers and self._timers[0][0] <= now_seconds:
            _, _, held = heapq.heappop(self._timers)
            if isinstance(held, Entry):
                self._give_back(held)
                self._free(held.lane, held.home, now_seconds)
            elif held.entries:
                held.is_busy = False
                self._schedule(held, now_seconds)

    def next_due_seconds(self) -> float | None:
        """Return the time of the next retry or release; None if none waits."""
        return self._timers[0][0] if self._timers else None

    def stop(self) -> None:
        """Start no more calls; in queue mode release every record that is not running."""
        self.is_stopping = True
        if self.options.mode is not Mode.QUEUE:
            return
        for _, _, held in self._timers:
            if isinstance(held, Entry):
                self._give_back(held)
        self._timers.clear()
        for home in self._partitions.values():
            for lane in home.lanes.values():
                for entry in lane.entries:
                    self._give_back(entry)
                lane.entries.clear()
            home.ready.clear()

    def is_idle(self) -> bool:
        """Return whether no call and no write is under way."""
        return self.running == 0 and not self.is_active(self._partitions)

    def progress(self, *, is_last: bool = False) -> Progress:
        """Return the work that is done since the last call of this method.

        The last progress has all positions: an earlier commit may still be under way.
        """
        positions = {}
        for at, home in self._partitions.items():
            position = home.position
            is_new = is_last or position != home.committed
            if position is not None and is_new and not home.is_revoking:
                home.committed = position
                positions[at] = position
        settled, self._settled = self._settled, []
        return Progress(positions, settled)

    def uncommitted(self, positions: Mapping[TopicPartition, int]) -> None:
        """Note that a commit failed: the next progress has these positions again."""
        for at in positions:
            if (home := self._partitions.get(at)) is not None:
                home.committed = None

    def validate(self) -> None:
        """Check the invariants; tests call it after every event."""
        assert 0 <= self.running <= self.options.concurrency
        for home in self._partitions.values():
            home.validate()
            for lane in home.lanes.values():
                assert lane.is_busy, "an idle lane is deleted or scheduled"
        waiting = [
            entry
            for home in self._partitions.values()
            for lane in home.lanes.values()
            for entry in lane.entries
        ]
        assert self._main.records + self._retries.records >= len(waiting)


def _with_attempt(record: ConsumerRecord, attempt: int) -> ConsumerRecord:
    return ConsumerRecord(
        record.topic,
        record.partition,
        record.offset,
        record.timestamp_ms,
        record.key,
        record.value,
        record.headers,
        attempt,
    )
