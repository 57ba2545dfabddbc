"""The status of an up pipe for operators: health, records and bytes that wait, room on the disk.

`DiskTrend` estimates when the disk is full, by the free space of the last minutes. Pure.
"""

from collections import deque
from collections.abc import Mapping
from typing import Final, Protocol

from penstock.core.clock import Clock
from penstock.core.types import TopicPartition
from penstock.edge.pipes.down_pipe import Phase, Problem
from penstock.edge.pipes.pipe_health import Facts, Room, judge, seconds_to_catch_up
from penstock.edge.pipes.pipe_meter import PipeMeter
from penstock.edge.pipes.pipe_status import PartitionStatus, PipeOptions, PipeStatus
from penstock.edge.pipes.up_outbox import SentPartition
from penstock.edge.pipes.up_ports import Sites

POLL_SECONDS: Final = 20.0
"""A parent that gets no records is called about every 15 s."""
TREND_SECONDS: Final = 600.0
SAMPLE_SECONDS: Final = 10.0
DROP_SECONDS: Final = 1.0
"""Between two removals of old records: the free space is measured in between."""


class DiskTrend:
    """The free space of the last minutes."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()
        self._dropped_at = -DROP_SECONDS

    def sample(self, now: float, left_bytes: int) -> None:
        """Note the free space, at most once in 10 seconds."""
        if self._samples and now - self._samples[-1][0] < SAMPLE_SECONDS:
            return
        self._samples.append((now, left_bytes))
        while now - self._samples[0][0] > TREND_SECONDS:
            self._samples.popleft()

    def may_drop(self, now: float) -> bool:
        """Return whether old records may be removed now; at most once in a second."""
        if now - self._dropped_at < DROP_SECONDS:
            return False
        self._dropped_at = now
        return True

    def seconds_until_full(self, now: float, left_bytes: int) -> float | None:
        """Return the time until the disk is full at the present rate; None if it does not fill."""
        if not self._samples:
            return None
        began_at, began_with = self._samples[0]
        filled = began_with - left_bytes
        if filled <= 0 or now - began_at < SAMPLE_SECONDS:
            return None
        return max(0, left_bytes) * (now - began_at) / filled


class Runner(Protocol):
    """The parts of `up_runner.UpRunner` that are shown."""

    options: PipeOptions
    meter: PipeMeter
    disk: DiskTrend
    problems: dict[str, Problem]
    failure: str
    refusal: Problem | None
    is_fenced: bool
    is_paused: bool
    has_looked: bool

    @property
    def partitions(self) -> Mapping[TopicPartition, SentPartition]:
        """The partitions of the pipe."""
        ...


def up_status(runner: Runner, sites: Sites, clock: Clock) -> PipeStatus:
    """Return the state of an up pipe."""
    now, meter, disk = clock.monotonic(), runner.meter, sites.room()
    rows = [_row(one, sites) for one in runner.partitions.values()]
    lag_records = sum(one.lag_records for one, _ in rows)
    waiting_bytes = sum(size for _, size in rows)
    rate = meter.records_per_second(now)
    pipes = [one.pipe for one in runner.partitions.values()]
    is_in_step = (
        runner.has_looked
        and not (runner.failure or runner.is_fenced or runner.is_paused or runner.problems)
        and lag_records == 0
        and all(one.phase is Phase.COPYING for one in pipes)
    )
    problems = [
        *([runner.refusal] if runner.refusal else []),
        *runner.problems.values(),
        *filter(None, (one.pipe.problem or one.refusal for one in runner.partitions.values())),
    ]
    if disk.room is Room.FULL:
        problems.append(
            Problem(
                f"disk full: clients cannot write here; {waiting_bytes} bytes wait to be sent",
                'free disk space, or set on_full = "drop_oldest" to lose the oldest records',
            )
        )
    facts = Facts(
        now=now,
        silent_since=meter.contact_at,
        poll_seconds=POLL_SECONDS,
        is_retrying=bool(runner.failure),
        problems=problems,
        failure=runner.failure,
        behind_since=meter.behind_since if lag_records else None,
        is_catching_up=meter.is_catching_up,
        lag_records=lag_records,
        records_per_second=rate,
        room=Room.LOW if disk.room is Room.LOW else Room.ENOUGH,
        is_paused=runner.is_paused,
        clock_skew_seconds=0.0,
    )
    return PipeStatus(
        options=runner.options,
        health=judge(facts),
        is_paused=runner.is_paused,
        is_in_step=is_in_step,
        partitions=tuple(one for one, _ in rows),
        promoted=(),
        busy_groups=(),
        lag_records=lag_records,
        records=meter.records,
        size_bytes=meter.size_bytes,
        records_per_second=rate,
        bytes_per_second=meter.bytes_per_second(now),
        seconds_to_catch_up=seconds_to_catch_up(lag_records, rate),
        seconds_until_full=runner.disk.seconds_until_full(now, disk.left_bytes),
        silent_seconds=max(0.0, now - meter.contact_at),
        gaps=sum(one.gaps for one in pipes),
        gap_records=sum(one.gap_records for one in pipes),
        cut_records=0,
        waiting_bytes=waiting_bytes,
    )


def _row(one: SentPartition, sites: Sites) -> tuple[PartitionStatus, int]:
    """Return the status of a partition, and about how many bytes of it wait."""
    log, pipe = sites.log(one.at), one.pipe
    lag = waiting = 0
    if log is not None:
        sent = max(pipe.position, log.start_offset)
        lag = max(0, log.end_offset - sent)
        waiting = log.size_bytes * lag // max(1, log.end_offset - log.start_offset)
    problem = pipe.problem or one.refusal
    shown = PartitionStatus(
        one.at.topic,
        one.at.partition,
        pipe.phase,
        pipe.position,
        lag,
        problem.reason if problem else "",
        problem.remedy if problem else "",
    )
    return shown, waiting
