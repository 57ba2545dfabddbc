"""The options of a pipe, and its status for operators. Values only."""

from collections.abc import Callable
from typing import NamedTuple

from penstock.core.settings.pipe_declarations import is_match
from penstock.edge.pipes.down_pipe import OnGap, Phase
from penstock.edge.pipes.pipe_health import Health, Priority


class PipeOptions(NamedTuple):
    """The options of one pipe."""

    name: str
    parent: str
    """Bootstrap addresses, for messages."""
    topics: tuple[str, ...]
    """Names of topics; `*` stands for any characters."""
    groups: tuple[str, ...] = ()
    on_gap: OnGap = OnGap.STOP
    priority: Priority = Priority.NORMAL
    bytes_per_second_max: int = 0
    """0: no bound."""
    batch_bytes_max: int = 1_048_576
    poll_interval_ms: int = 1_000
    direction: str = "down"
    site: str = ""
    """The name under which records go up."""
    is_dropping: bool = False
    """Whether a disk without room removes records that were not sent."""


class PartitionStatus(NamedTuple):
    """One mirrored partition."""

    topic: str
    partition: int
    phase: Phase
    end_offset: int
    lag_records: int
    reason: str = ""
    remedy: str = ""


class PipeStatus(NamedTuple):
    """One pipe at one moment."""

    options: PipeOptions
    health: Health
    is_paused: bool
    is_in_step: bool
    """Whether everything that the parent has is here."""
    partitions: tuple[PartitionStatus, ...]
    promoted: tuple[str, ...]
    """Topics that the pipe does not write any more."""
    busy_groups: tuple[str, ...]
    """Groups that have members here, so that their offsets are not copied."""
    lag_records: int
    records: int
    size_bytes: int
    records_per_second: float
    bytes_per_second: float
    seconds_to_catch_up: float | None
    seconds_until_full: float | None
    silent_seconds: float
    """Since the last answer of the parent."""
    gaps: int
    gap_records: int
    cut_records: int
    waiting_bytes: int = 0
    """About this number of bytes was not sent yet."""


def matcher(patterns: tuple[str, ...]) -> Callable[[str], bool]:
    """Return a function that says whether a name is one of the patterns."""
    names = frozenset(one for one in patterns if "*" not in one)
    wild = [one for one in patterns if "*" in one]
    return lambda name: name in names or any(is_match(name, one) for one in wild)
