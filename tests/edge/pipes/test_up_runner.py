"""The rounds of an up pipe with a parent in memory: faults at each step, fencing, full disks."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from random import Random
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.clock import SystemClock
from penstock.core.errors import AnswerLostError, PenstockError
from penstock.core.types import TopicPartition
from penstock.edge.pipes import up_runner
from penstock.edge.pipes.common_end import BatchMark
from penstock.edge.pipes.parent_calls import first_mark
from penstock.edge.pipes.pipe_health import Room
from penstock.edge.pipes.pipe_status import PipeOptions
from penstock.edge.pipes.ports import CommittedOffset, DiskRoom
from penstock.edge.pipes.site_batches import Outgoing, SiteRead
from penstock.edge.pipes.up_outbox import SEND_BYTES_MIN, SendSize
from penstock.edge.pipes.up_pipe import SiteLog
from penstock.edge.pipes.up_ports import PartitionRefusedError, SiteFencedError, SiteTopic
from penstock.edge.pipes.up_runner import UpRunner
from penstock.protocol.error_codes import ErrorCode
from penstock.records.batch import read_header
from tests.edge.pipes.test_site_batches import TOPIC_ID, batch, texts

AT = TopicPartition("t", 0)


@dataclass
class Site:
    """`up_ports.Sites` and `up_ports.Note` in memory."""

    batches: list[bytes] = field(default_factory=list)
    start: int = 0
    end: int = 0
    note: str = ""
    disk: Room = Room.ENOUGH
    topic_id: UUID = TOPIC_ID

    def write(self, *values: str) -> None:
        self.batches.append(batch(self.end, *values))
        self.end += len(values)

    def topics(self) -> Mapping[str, SiteTopic]:
        return {"t": SiteTopic(self.topic_id, 1, is_compacted=False)}

    def log(self, at: TopicPartition) -> SiteLog | None:
        assert at == AT
        return SiteLog(self.topic_id, self.start, self.end, self.end, 100)

    def _from(self, offset: int) -> list[bytes]:
        return [one for one in self.batches if read_header(one).last_offset >= offset]

    async def read(self, at: TopicPartition, offset: int, bytes_max: int) -> SiteRead:
        assert (at, bytes_max > 0) == (AT, True)
        return SiteRead(memoryview(b"".join(self._from(offset)[:3])), ())

    async def batch_at(self, at: TopicPartition, offset: int) -> BatchMark | None:
        assert at == AT
        found = self._from(offset)
        return first_mark(memoryview(found[0])) if found else None

    async def drop_oldest(self, partitions: Collection[TopicPartition]) -> bool:
        assert list(partitions) == [AT]
        self.start = read_header(self.batches[0]).next_offset
        del self.batches[0]
        return True

    def room(self) -> DiskRoom:
        return DiskRoom(self.disk, 1_000)

    async def load(self) -> str:
        return self.note

    async def save(self, text: str) -> None:
        self.note = text


class LostError(AnswerLostError):
    """The answer of a call was lost."""


@dataclass
class Cluster:
    """A parent: transactions of one transactional id, with faults at each step."""

    random: Random
    faults_left: int = 0
    epoch: int = 0
    committed: list[str] = field(default_factory=list)
    position: CommittedOffset | None = None
    steps: list[str] = field(default_factory=list)

    def has(self, count: int) -> bool:
        return len(self.committed) >= count

    def fault(self, step: str) -> None:
        if self.faults_left and self.random.random() < 0.3:
            self.faults_left -= 1
            self.steps.append(step)
            raise LostError(step)


class Sender:
    """`up_ports.Upstream` of a cluster in memory."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.epoch = -1

    async def partition_counts(self, names: Collection[str]) -> Mapping[str, int]:
        self.cluster.fault("counts")
        return dict.fromkeys(names, 1)

    async def create(self, name: str, partition_count: int) -> None:
        raise AssertionError((name, partition_count))

    async def begin(self) -> None:
        self.cluster.epoch += 1
        self.epoch = self.cluster.epoch
        self.cluster.fault("begin")

    async def positions(self) -> Mapping[TopicPartition, CommittedOffset]:
        self.cluster.fault("positions")
        found = self.cluster.position
        return {} if found is None else {AT: found}

    async def transact(self, parts: Mapping[TopicPartition, Outgoing]) -> None:
        self.cluster.fault("before the transaction")
        await asyncio.sleep(0)
        if self.epoch != self.cluster.epoch:
            raise SiteFencedError("fenced")
        for part in parts.values():
            self.cluster.committed += texts(part)
            text = part.mark.text() if part.mark else ""
            self.cluster.position = CommittedOffset(part.next_offset, -1, text)
        self.cluster.fault("after the commit")

    async def close(self) -> None:
        pass


def runner_of(site: Site, cluster: Cluster, **options: object) -> UpRunner:
    async def opened() -> Sender:
        return Sender(cluster)

    given_options = PipeOptions("up", "parent", ("t",), poll_interval_ms=10, direction="up")
    chosen = given_options._replace(site="s", **options)  # type: ignore[arg-type]
    return UpRunner(chosen, opened, site, site, SystemClock(), lambda: 0.0)


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 (the runner has no event for tests)
        await asyncio.sleep(0.001)


async def run_until(runner: UpRunner, condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        task = tasks.create_task(runner.run())
        await _until(condition)
        task.cancel()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.lists(st.integers(1, 4), min_size=1, max_size=12))
def test_each_record_arrives_once_whatever_fails(seed: int, sizes: list[int]) -> None:
    random = Random(seed)
    site, cluster = Site(), Cluster(random)
    wanted: list[str] = []

    async def story() -> None:
        for number, size in enumerate(sizes):
            some = [f"{number}.{index}" for index in range(size)]
            site.write(*some)
            wanted.extend(some)
            cluster.faults_left = random.randrange(4)
            if random.random() < 0.2:
                site.note = random.choice(["", "{", site.note])  # a crash before the note
            goal = len(wanted) if random.random() < 0.7 else 0
            await run_until(runner_of(site, cluster), partial(cluster.has, goal))

    asyncio.run(story())
    asyncio.run(run_until(runner_of(site, cluster), lambda: len(cluster.committed) >= len(wanted)))
    assert cluster.committed == wanted


def test_a_parent_that_forgot_the_position_gets_nothing_twice() -> None:
    site, cluster = Site(), Cluster(Random(1))
    site.write("a", "b")
    asyncio.run(run_until(runner_of(site, cluster), lambda: bool(site.note)))
    cluster.position = None  # after offsets.retention.minutes
    site.write("c")
    asyncio.run(run_until(runner_of(site, cluster), lambda: "c" in cluster.committed))
    assert cluster.committed == ["a", "b", "c"]


def test_a_fenced_site_stops_until_it_is_resumed() -> None:
    site, cluster = Site(), Cluster(Random(1))
    site.write("a")
    runner = runner_of(site, cluster)

    async def story() -> None:
        async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
            task = tasks.create_task(runner.run())
            await _until(lambda: bool(cluster.committed))
            cluster.epoch += 1
            site.write("b")
            await _until(lambda: runner.is_fenced)
            for _ in range(20):
                await asyncio.sleep(0)
            assert cluster.epoch == 2  # it did not fence the other one in turn
            assert runner.status().health.state.value == "UNHEALTHY"
            runner.resume()
            await _until(lambda: cluster.committed == ["a", "b"])
            task.cancel()

    asyncio.run(story())


def test_unsent_records_are_held_unless_the_disk_is_full_and_the_pipe_drops() -> None:
    site, cluster = Site(), Cluster(Random(1))
    topic = SiteTopic(TOPIC_ID, 1, is_compacted=False)
    keeps, drops = runner_of(site, cluster), runner_of(site, cluster, is_dropping=True)
    assert keeps.held_from(AT, topic) == drops.held_from(AT, topic) == 0
    assert keeps.held_from(TopicPartition("other", 0), topic) is None
    site.disk = Room.LOW
    assert keeps.held_from(AT, topic) == 0
    assert drops.held_from(AT, topic) is None
    site.disk = Room.ENOUGH
    site.write("a")
    asyncio.run(run_until(keeps, lambda: keeps.held_from(AT, topic) == 1))
    assert keeps.held_from(AT, SiteTopic(UUID(int=8), 1, is_compacted=False)) == 0


def test_a_full_disk_drops_the_oldest_records_and_reports_the_gap() -> None:
    site, cluster = Site(disk=Room.FULL), Cluster(Random(1))
    site.write("lost")
    site.write("kept")
    runner = runner_of(site, cluster, is_dropping=True)
    asyncio.run(run_until(runner, lambda: "kept" in cluster.committed))
    status = runner.status()
    assert cluster.committed == ["kept"]
    assert (status.gaps, status.gap_records) == (1, 1)
    assert "clients cannot write here" in status.health.reason


class Refusing(Sender):
    """Refuses joined batches, then everything."""

    def __init__(self, cluster: Cluster, codes: list[ErrorCode]) -> None:
        super().__init__(cluster)
        self._codes = codes

    async def transact(self, parts: Mapping[TopicPartition, Outgoing]) -> None:
        if self._codes:
            raise PartitionRefusedError(AT, self._codes.pop(0).name, "no")
        await super().transact(parts)


def test_a_refused_partition_is_reported_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(up_runner, "REFUSED_SECONDS", 0.2)
    codes = [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_TIMESTAMP]
    site, cluster = Site(), Cluster(Random(1))
    site.write("a")
    site.write("b")

    async def opened() -> Sender:
        return Refusing(cluster, codes)

    options = PipeOptions("up", "parent", ("t",), poll_interval_ms=10, direction="up", site="s")
    runner = UpRunner(options, opened, site, site, SystemClock(), lambda: 0.0)
    seen: set[str] = set()

    def is_done() -> bool:
        seen.add(runner.status().health.reason)
        return cluster.committed == ["a", "b"]

    asyncio.run(run_until(runner, is_done))
    assert any("INVALID_TIMESTAMP" in one for one in seen)
    assert not any("MESSAGE_TOO_LARGE" in one for one in seen if "refuses records" in one)


def test_no_error_ends_the_pipe() -> None:
    site = Site()
    failures: list[Exception] = [PenstockError("no"), ValueError("a defect"), SiteFencedError("x")]

    async def opened() -> Sender:
        raise failures.pop(0)

    options = PipeOptions("up", "parent", ("t",), direction="up", site="s")
    runner = UpRunner(options, opened, site, site, SystemClock(), lambda: 0.0)
    asyncio.run(run_until(runner, lambda: runner.is_fenced))
    assert not failures


def test_a_bound_on_the_bytes_bounds_a_transaction() -> None:
    site = Site()

    async def opened() -> Sender:
        raise PenstockError("not asked")

    options = PipeOptions("up", "parent", ("t",), direction="up", site="s", bytes_per_second_max=99)
    runner = UpRunner(options, opened, site, site, SystemClock(), lambda: 0.0)
    assert runner._size.bytes_max == 99


def test_a_transaction_that_the_line_does_not_carry_becomes_smaller() -> None:
    size = SendSize(1_048_576)
    for _ in range(3):
        size.failed()
    assert size.bytes_max == 131_072
    for _ in range(10):
        size.failed()
    assert size.bytes_max == SEND_BYTES_MIN
    for _ in range(16):
        size.sent()
    assert size.bytes_max == 1_048_576
    tiny = SendSize(1_024)
    tiny.failed()
    assert tiny.bytes_max == 1_024


def test_a_slow_line_gets_the_records_in_small_transactions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site, cluster = Site(), Cluster(Random(1))
    for number in range(3):
        site.write(str(number))
    asked: list[int] = []

    async def read(at: TopicPartition, offset: int, bytes_max: int) -> SiteRead:
        asked.append(bytes_max)
        count = 3 if bytes_max > 200_000 else 1
        return SiteRead(memoryview(b"".join(site._from(offset)[:count])), ())

    sent = Sender.transact

    async def slow(sender: Sender, parts: Mapping[TopicPartition, Outgoing]) -> None:
        if sum(one.record_count for one in parts.values()) > 1:
            raise LostError("no answer within 10 s")
        await sent(sender, parts)

    monkeypatch.setattr(site, "read", read)
    monkeypatch.setattr(Sender, "transact", slow)
    asyncio.run(run_until(runner_of(site, cluster), lambda: cluster.has(3)))
    assert cluster.committed == ["0", "1", "2"]
    assert asked[:4] == [1_048_576, 524_288, 262_144, 131_072]


def test_a_topic_with_too_few_partitions_is_sent_when_the_parent_has_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(up_runner, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(Site, "topics", lambda _: {"t": SiteTopic(TOPIC_ID, 2, is_compacted=False)})
    monkeypatch.setattr(Site, "log", lambda *_: SiteLog(TOPIC_ID, 0, 0, 0, 0))
    site, cluster = Site(), Cluster(Random(1))
    counts = {"t": 1}

    async def counted(_sender: Sender, _names: Collection[str]) -> Mapping[str, int]:
        return counts

    monkeypatch.setattr(Sender, "partition_counts", counted)
    runner = runner_of(site, cluster)

    async def story() -> None:
        async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
            task = tasks.create_task(runner.run())
            await _until(lambda: "t" in runner.problems and runner.has_looked)
            counts["t"] = 2
            await _until(lambda: not runner.problems and runner.failure == "")
            task.cancel()

    asyncio.run(story())


def test_a_reset_while_another_one_is_committed_is_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site, cluster = Site(), Cluster(Random(1))
    site.write("a", "b")
    runner = runner_of(site, cluster)
    sent = Sender.transact

    async def meanwhile(sender: Sender, parts: Mapping[TopicPartition, Outgoing]) -> None:
        if any(not one.batches for one in parts.values()) and not resets:
            resets.append(runner.reset((), "earliest"))
        await sent(sender, parts)

    resets: list[list[str]] = []
    monkeypatch.setattr(Sender, "transact", meanwhile)

    async def story() -> None:
        async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
            task = tasks.create_task(runner.run())
            await _until(lambda: cluster.has(2))
            runner.reset((), "latest")
            await _until(lambda: cluster.has(4))
            task.cancel()

    asyncio.run(story())
    assert cluster.committed == ["a", "b", "a", "b"]
