"""The load of a cluster: producers and a watcher with a ledger, and workers with a history.

Guarantees: after the faults `LedgerLoad.violations` says what the log breaks: every acknowledged
record is there once and where it was acknowledged, in the order of its producer, and nothing that a
consumer was shown is gone. `HistoryLoad.finish` is the verdict of the history checker about
transactions, groups and aborted records. `Gaps` are the longest times without an acknowledgement.
"""

import dataclasses
import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from tests.chaos_cluster.cluster import Cluster
from tests.chaos_cluster.foreign_clients import command_of
from tests.checker.check import Mode, check
from tests.checker.history import save
from tests.crash.clients import PARTITIONS, TOPIC, LoadProcess, read_everything
from tests.crash.ledger import Ledger, PartitionContent, Sent, sent_of
from tests.histories.plan import PARTITIONS_OF_A_TOPIC, TOPIC_SETTINGS, Plan
from tests.histories.recorder import Recorder
from tests.histories.run import KEPT, Result, end_transactions

PROGRESS_SECONDS_MAX = 15.0
"""After the end of a fault, until every producer has records acknowledged again."""
RECORDS_AFTER_A_FAULT = 20
REQUEST_SECONDS = 5
"""A client repeats a request to a silent broker after this time."""
LEDGER_TOPIC_SETTINGS = {"segment.ms": "1000", "index.interval.bytes": "512"}
WATCHER = "watcher"


@dataclasses.dataclass(frozen=True)
class Gaps:
    """The longest times without an acknowledgement."""

    one_partition_seconds: float
    """Of the partition that waited longest."""
    all_seconds: float
    """Of all partitions together."""


class TimedLedger(Ledger):
    """A ledger that knows when records were acknowledged, with or without an offset.

    librdkafka reports success without an offset for a record whose request had no answer, when a
    later record of the same partition is acknowledged: the sequence numbers show that it is stored.
    Such a record must be there too.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now = now
        self._times: dict[int, list[float]] = defaultdict(list)
        self.unplaced: set[Sent] = set()
        """Records that were acknowledged without an offset."""

    def acknowledged(self, sent: Sent, offset: int) -> None:
        """Note the time too."""
        super().acknowledged(sent, offset)
        self._times[sent.partition].append(self._now())

    def gave_up(self, sent: Sent, reason: str) -> None:
        """Tell success without an offset from a failure."""
        if reason == repr(None):
            self.unplaced.add(sent)
        else:
            super().gave_up(sent, reason)

    def gaps(self, begun: float, ended: float) -> Gaps:
        """The longest gaps between two moments."""
        by_partition = [_inside(list(times), begun, ended) for times in self._times.values()]
        together = sorted(moment for times in by_partition for moment in times)
        single = max((_longest(times) for times in by_partition), default=ended - begun)
        return Gaps(single, _longest([begun, *together, ended]))


def lost_without_offset(
    unplaced: frozenset[Sent], log: Mapping[int, PartitionContent]
) -> Iterator[str]:
    """The records that were acknowledged without an offset and are not there."""
    there = {sent_of(value) for content in log.values() for _, value in content}
    for sent in unplaced - there:
        yield f"lost: {sent}, acknowledged without an offset"


def _inside(times: Sequence[float], begun: float, ended: float) -> list[float]:
    return [begun, *(moment for moment in times if begun <= moment <= ended), ended]


def _longest(times: Sequence[float]) -> float:
    return max((b - a for a, b in itertools.pairwise(times)), default=0.0)


class LedgerLoad:
    """Idempotent producers and a watcher on one topic with three replicas."""

    def __init__(
        self,
        cluster: Cluster,
        seed: int,
        producers: Sequence[str],
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.ledger = TimedLedger()
        self.producers = tuple(producers)
        self._bootstrap = cluster.bootstrap
        cluster.create_topic(TOPIC, PARTITIONS, {**LEDGER_TOPIC_SETTINGS, **(settings or {})})
        self._loads = [
            LoadProcess(
                client, cluster.bootstrap, self.ledger, seed, REQUEST_SECONDS, command_of(client)
            )
            for client in (*self.producers, WATCHER)
        ]

    def wait_for_progress(
        self, seconds: float = PROGRESS_SECONDS_MAX, records: int = RECORDS_AFTER_A_FAULT
    ) -> float:
        """Wait for `records` further acknowledgements of each producer; return the seconds."""
        begun = time.monotonic()
        goals = {name: self.ledger.acknowledged_count(name) + records for name in self.producers}
        while waiting := [
            name for name, goal in goals.items() if self.ledger.acknowledged_count(name) < goal
        ]:
            for load in self._loads:
                load.require_alive()
            assert time.monotonic() < begun + seconds, (
                f"nothing acknowledged for {', '.join(waiting)} in {seconds:.0f} s after the fault"
            )
            time.sleep(0.02)
        return time.monotonic() - begun

    def violations(self) -> list[str]:
        """Read everything back and compare; the producers may run."""
        expected, unplaced = self.ledger.expected(), frozenset(self.ledger.unplaced)
        log = read_everything(self._bootstrap)
        return [*self.ledger.violations(expected, log), *lost_without_offset(unplaced, log)]

    def stop(self) -> None:
        """End the clients after everything in flight is settled."""
        for load in self._loads:
            load.stop()

    def abandon(self) -> None:
        """End the clients without waiting."""
        for load in self._loads:
            load.abandon()


class HistoryLoad:
    """Workers that do random operations, for the history checker."""

    def __init__(self, cluster: Cluster, plan: Plan) -> None:
        self._plan = plan
        self._bootstrap = cluster.bootstrap
        self._begun = time.monotonic()
        for name in plan.topic_names:
            cluster.create_topic(name, PARTITIONS_OF_A_TOPIC, TOPIC_SETTINGS)
        self.recorder = Recorder(plan, cluster.bootstrap)
        self.recorder.start_all()

    def finish(self, faults: Sequence[str]) -> Result:
        """End the workers, read everything with each library, and check."""
        KEPT.mkdir(parents=True, exist_ok=True)
        saved: Path = KEPT / f"cluster-{self._plan.name}.jsonl"
        try:
            self.recorder.end()
            end_transactions(self._bootstrap, self._plan)
            is_complete = self.recorder.read_everything(tuple(dict.fromkeys(self._plan.libraries)))
        finally:
            self.recorder.abandon()
            history = self.recorder.history()
            save(history, saved)
        failures = self.recorder.failures()
        assert not failures, "\n".join(failures)
        report = check(history, Mode(with_subscribe=self._plan.via == "subscribe"))
        assert report.figures.values_read, f"nothing was read, which proves nothing: {saved}"
        seconds = time.monotonic() - self._begun
        return Result(self._plan, history, report, list(faults), is_complete, saved, seconds)

    def abandon(self) -> None:
        """End the workers without waiting."""
        self.recorder.abandon()
