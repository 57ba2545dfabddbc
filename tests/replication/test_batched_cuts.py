"""Truncations of many logs: one batch for those of a moment, each caller gets its own error."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence

import pytest

from penstock.core.errors import PenstockError, StorageBusyError, StorageError
from penstock.core.types import TopicPartition
from penstock.replication.followers.batched_cuts import BATCH_LOGS_MAX, BatchedCuts
from penstock.storage.log.partition_log import PartitionLog
from tests.storage.logs import PARTITION
from tests.storage.test_log_truncation import OTHER, POINTS, Scene
from tests.storage.test_log_truncation import run as run_scene


class Logs:
    """Notes the batches; a test lets them end."""

    def __init__(self) -> None:
        self.batches: list[dict[TopicPartition, int]] = []
        self.ends = asyncio.Event()
        self.ends.set()
        self.errors: dict[TopicPartition, PenstockError] = {}
        self.failure: PenstockError | None = None

    async def truncate_logs(
        self, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, PenstockError]:
        self.batches.append(dict(offsets))
        await self.ends.wait()
        if self.failure is not None:
            raise self.failure
        return self.errors

    async def restart_log(self, topic_partition: TopicPartition, offset: int) -> None:
        raise AssertionError("not used here")

    async def advance_starts(
        self, starts: Sequence[tuple[PartitionLog, int]]
    ) -> list[PenstockError | None]:
        raise AssertionError("not used here")


def name(number: int) -> TopicPartition:
    return TopicPartition("orders", number)


def run(story: Callable[[Logs, BatchedCuts], Coroutine[None, None, None]]) -> None:
    async def go() -> None:
        logs = Logs()
        async with asyncio.timeout(5):
            await story(logs, BatchedCuts(logs))

    asyncio.run(go())


def test_the_truncations_of_a_moment_are_one_batch() -> None:
    async def story(logs: Logs, batches: BatchedCuts) -> None:
        await asyncio.gather(*(batches.truncate_log(name(one), one) for one in range(100)))
        assert logs.batches == [{name(one): one for one in range(100)}]

    run(story)


def test_truncations_that_come_meanwhile_are_the_next_batch() -> None:
    async def story(logs: Logs, batches: BatchedCuts) -> None:
        logs.ends.clear()
        loop = asyncio.get_running_loop()
        first = loop.create_task(batches.truncate_log(name(0), 5))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        others = [loop.create_task(batches.truncate_log(name(one), 5)) for one in (1, 2)]
        again = loop.create_task(batches.truncate_log(name(1), 3))
        await asyncio.sleep(0)
        logs.ends.set()
        await asyncio.gather(first, *others, again)
        assert logs.batches == [{name(0): 5}, {name(1): 5, name(2): 5}, {name(1): 3}]

    run(story)


def test_a_batch_is_bounded() -> None:
    async def story(logs: Logs, batches: BatchedCuts) -> None:
        count = BATCH_LOGS_MAX + 1
        await asyncio.gather(*(batches.truncate_log(name(one), 0) for one in range(count)))
        assert [len(batch) for batch in logs.batches] == [BATCH_LOGS_MAX, 1]

    run(story)


def test_an_error_is_that_of_its_log() -> None:
    async def story(logs: Logs, batches: BatchedCuts) -> None:
        logs.errors = {name(1): StorageError("damaged")}
        outcomes = await asyncio.gather(
            *(batches.truncate_log(name(one), 0) for one in range(3)), return_exceptions=True
        )
        assert [str(one) for one in outcomes] == ["None", "damaged", "None"]
        logs.failure = StorageBusyError("too much waits")
        with pytest.raises(StorageBusyError):
            await batches.truncate_log(name(0), 0)
        logs.failure = None
        await batches.truncate_log(name(0), 0)

    run(story)


def test_a_cancelled_caller_ends_no_batch() -> None:
    async def story(logs: Logs, batches: BatchedCuts) -> None:
        logs.ends.clear()
        loop = asyncio.get_running_loop()
        gone, stays = (loop.create_task(batches.truncate_log(name(one), 0)) for one in range(2))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        gone.cancel()
        logs.ends.set()
        await stays
        assert gone.cancelled()

    run(story)


def test_single_truncations_share_a_checkpoint() -> None:
    """Without batches, a failover of 1,000 partitions writes each checkpoint 1,000 times."""

    async def story(scene: Scene) -> None:
        batches = BatchedCuts(scene.service)
        await asyncio.gather(batches.truncate_log(PARTITION, 4), batches.truncate_log(OTHER, 7))
        assert scene.written(POINTS) == 1
        assert (scene.log.end_offset, scene.other.end_offset) == (4, 7)

    run_scene(story)


def test_a_restart_that_was_decided_waits_for_a_free_thread() -> None:
    """Guards `_replaced`: the log was out of service until the next start."""

    async def story(scene: Scene) -> None:
        work = scene.service._runner._work
        refusals = [StorageBusyError("too much waits")] * 2
        calls = 0

        async def busy(call: Callable[[], object]) -> object:
            nonlocal calls
            calls += 1
            if calls > 1 and refusals:
                raise refusals.pop()
            return await work(call)

        async def rest(_seconds: float) -> None:
            await asyncio.sleep(0)

        scene.service._runner._work = busy  # type: ignore[assignment]
        scene.service._runner._rest = rest
        await scene.service.restart_log(PARTITION, 20)
        assert not refusals
        assert (scene.log.log_start_offset, scene.log.end_offset) == (20, 20)
        assert scene.log.problem is None

    run_scene(story)
