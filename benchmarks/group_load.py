"""The cost of groups and transactions: one function for each figure, on any broker.

Guarantees: a rejected request ends the run; a partition that two members own at once ends it; the
log's end offset is compared with the number of acknowledged records. Each function runs an event
loop of its own, so the caller need not be asynchronous. The choice of brokers, the number of rounds
and the table are NOT defined here: see `benchmarks.groups`.
"""

import asyncio
import contextlib
import dataclasses
import itertools
import time
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TypeAlias

from benchmarks.contestants import Topics
from benchmarks.group_members import STATIC_LEAVE_EPOCH, ClassicMember, ConsumerMember, Crowd
from benchmarks.wire import (
    GROUP_KEY,
    Wire,
    check,
    connect,
    make_coordinator,
    percentile,
)
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tests.oracle.running_broker import RunningBroker

COMMIT_VERSION = 9
COMMIT_CONNECTIONS = 40
PAUSE_SECONDS = 0.1
"""Between two heartbeats of a member in a comparison; short, so that the broker is measured."""
REBALANCE_PARTITIONS = 200


AnyMember: TypeAlias = ConsumerMember | ClassicMember


class Members:
    """Running members; a failed member ends the measurement, through its task group."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self._group = tasks
        self._tasks: dict[AnyMember, asyncio.Task[None]] = {}

    async def start(self, member: AnyMember) -> None:
        """Let the member join, then send its heartbeats in a task."""
        await member.join()
        self._tasks[member] = self._group.create_task(member.run())

    def start_soon(self, member: AnyMember) -> None:
        """Start the member in a task, without waiting for its join."""
        self._group.create_task(self.start(member))

    def end(self, member: AnyMember) -> None:
        """Stop the heartbeats of the member without a leave request."""
        self._tasks.pop(member).cancel()

    def end_all(self) -> None:
        """Stop the heartbeats of all members."""
        for member in tuple(self._tasks):
            self.end(member)


@contextlib.asynccontextmanager
async def connections(bootstrap: str, count: int) -> AsyncIterator[Sequence[Wire]]:
    """Open `count` connections; they are closed when the block ends."""
    wires = [await connect(bootstrap) for _ in range(count)]
    try:
        yield wires
    finally:
        for wire in wires:
            wire.close()


# --- One large group ---


@dataclasses.dataclass(frozen=True)
class LargeGroup:
    """A KIP-848 group of many static members, and the restart of all of them."""

    members: int
    partitions: int
    stable_seconds: float
    """From the first join until every partition has its owner and the assignments differ by one."""
    heartbeats_until_stable: int
    broker_cpu_seconds: float
    """CPU time of the broker until the group is stable."""
    restart_seconds: float
    revocations_max: int
    """The highest number of revocations of one partition during the restarts."""
    rss_mb: float


def measure_large_group(broker: RunningBroker, members: int, partitions: int) -> LargeGroup:
    """Let all members join at once, then restart them one after the other.

    Members send heartbeats in the interval that the broker returns.
    """
    topic = Topics(broker.bootstrap).create(partitions=partitions)
    return asyncio.run(_large_group(broker, topic, members, partitions))


async def _large_group(
    broker: RunningBroker, topic: str, count: int, partitions: int
) -> LargeGroup:
    crowd = Crowd(f"large-{uuid.uuid4()}", topic, partitions, count)
    async with connections(broker.bootstrap, count) as wires, asyncio.TaskGroup() as tasks:
        await make_coordinator(wires[0], crowd.group_id, GROUP_KEY)
        members = [
            ConsumerMember(wire, crowd, instance_id=f"instance-{index}")
            for index, wire in enumerate(wires)
        ]
        running = Members(tasks)
        cpu_before = broker.usage().cpu_seconds
        begun = time.perf_counter()
        for member in members:
            running.start_soon(member)
        await crowd.until_stable()
        stable_seconds = time.perf_counter() - begun
        cpu_seconds = broker.usage().cpu_seconds - cpu_before
        heartbeats = crowd.heartbeats
        crowd.revocations.clear()
        begun = time.perf_counter()
        for index, wire in enumerate(wires):
            running.end(members[index])
            await members[index].leave(STATIC_LEAVE_EPOCH)
            members[index] = ConsumerMember(wire, crowd, instance_id=f"instance-{index}")
            await running.start(members[index])
        await crowd.until_stable()
        restart_seconds = time.perf_counter() - begun
        running.end_all()
        # A rebalance after a restart would show in the next heartbeats.
        for member in members:
            await member.heartbeat()
        await crowd.until_stable()
        return LargeGroup(
            count,
            partitions,
            stable_seconds,
            heartbeats,
            cpu_seconds,
            restart_seconds,
            max(crowd.revocations.values(), default=0),
            broker.usage().rss_bytes / 1e6,
        )


# --- Many groups ---


@dataclasses.dataclass(frozen=True)
class ManyGroups:
    """Groups that each commit one offset now and then."""

    groups: int
    commits: int
    commits_per_second: float
    p50_ms: float
    p99_ms: float
    """From the time when a commit was due, so that the delay of a slow broker counts."""
    highest_ms: float
    broker_cpu_share: float
    """Of one core."""


def measure_many_groups(
    broker: RunningBroker, groups: int, *, period_seconds: float, periods: int
) -> ManyGroups:
    """Every group commits once in each period, spread evenly over it."""
    topic = Topics(broker.bootstrap).create(partitions=10)
    return asyncio.run(_many_groups(broker, topic, groups, period_seconds, periods))


async def _many_groups(
    broker: RunningBroker, topic: str, groups: int, period_seconds: float, periods: int
) -> ManyGroups:
    async with connections(broker.bootstrap, COMMIT_CONNECTIONS) as wires:
        await make_coordinator(wires[0], "group-0", GROUP_KEY)
        taken: list[float] = []
        loop = asyncio.get_running_loop()

        async def committer(number: int) -> None:
            """Commits for every group whose number leaves this remainder."""
            mine = range(number, groups, COMMIT_CONNECTIONS)
            for turn in itertools.product(range(periods + 1), mine):
                period, group = turn
                due = begun + (period + group / groups) * period_seconds
                await asyncio.sleep(max(0.0, due - loop.time()))
                await commit(wires[number], f"group-{group}", topic, {group % 10: period})
                if period > 0:
                    taken.append(loop.time() - due)

        begun = loop.time() + 0.1
        committing = asyncio.gather(*(committer(number) for number in range(len(wires))))
        # The first period creates the groups and is not counted.
        await asyncio.sleep(begun + period_seconds - loop.time())
        cpu_before = broker.usage().cpu_seconds
        await committing
        cpu_seconds = broker.usage().cpu_seconds - cpu_before
        seconds = loop.time() - begun - period_seconds
    taken.sort()
    return ManyGroups(
        groups,
        len(taken),
        len(taken) / seconds,
        percentile(taken, 0.5) * 1e3,
        percentile(taken, 0.99) * 1e3,
        taken[-1] * 1e3,
        cpu_seconds / seconds,
    )


async def commit(wire: Wire, group_id: str, topic: str, offsets: dict[int, int]) -> None:
    """Commit offsets of one topic as a client without a member id."""
    partitions = tuple(
        OffsetCommitRequestPartition(partition_index=number, committed_offset=offset)
        for number, offset in offsets.items()
    )
    request = OffsetCommitRequest(
        group_id=group_id,
        member_id="",
        topics=(OffsetCommitRequestTopic(name=topic, partitions=partitions),),
    )
    answer = await wire.ask(request, COMMIT_VERSION, OffsetCommitResponse)
    for answered in answer.topics[0].partitions:
        check(answered.error_code, f"OffsetCommit of {group_id}")


# --- Rebalances ---


def measure_rebalance(broker: RunningBroker, topic: str, protocol: str, members: int) -> float:
    """Return the seconds from the join of the last member until all have their assignment."""
    return asyncio.run(_rebalance(broker.bootstrap, topic, protocol, members))


async def _rebalance(bootstrap: str, topic: str, protocol: str, count: int) -> float:
    crowd = Crowd(f"rebalance-{uuid.uuid4()}", topic, REBALANCE_PARTITIONS, count - 1)
    make: Callable[[Wire], AnyMember] = (
        (lambda wire: ConsumerMember(wire, crowd, pause_seconds=PAUSE_SECONDS))
        if protocol == "consumer"
        else (lambda wire: ClassicMember(wire, crowd, pause_seconds=PAUSE_SECONDS))
    )
    async with connections(bootstrap, count) as wires, asyncio.TaskGroup() as tasks:
        running = Members(tasks)
        await make_coordinator(wires[0], crowd.group_id, GROUP_KEY)
        *first, last = [make(wire) for wire in wires]
        for member in first:
            running.start_soon(member)
        await crowd.until_stable()
        # Wait until the rebalances have ended: every member sends a few heartbeats.
        await asyncio.sleep(5 * PAUSE_SECONDS)
        await crowd.until_stable()
        crowd.members = count
        begun = time.perf_counter()
        running.start_soon(last)
        await crowd.until_stable()
        seconds = time.perf_counter() - begun
        await asyncio.sleep(0)
        running.end_all()
    return seconds
