"""The glue: producer ids from blocks, one alarm, and the gate in front of a full disk."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from penstock.core.errors import DiskFullError, StoreError
from penstock.node.adapters import GroupTasks, LoopTimer, ProducerIdBlocks
from penstock.node.disk import ProduceGate
from penstock.storage.disk.disk_guard import DiskGuard, DiskState
from penstock.storage.disk.filesystem import Space


class Blocks:
    """A metadata service that returns blocks of three ids, and fails when the test says so."""

    def __init__(self) -> None:
        self.next = 0
        self.fails = False

    async def allocate_producer_ids(self) -> range:
        await asyncio.sleep(0)
        if self.fails:
            raise StoreError("no store")
        self.next += 3
        return range(self.next - 3, self.next)


def test_ids_are_given_once_over_blocks_and_tasks() -> None:
    async def ask() -> list[int]:
        ids = ProducerIdBlocks(Blocks())  # type: ignore[arg-type]
        return list(await asyncio.gather(*(ids.next_id() for _ in range(10))))

    assert sorted(asyncio.run(ask())) == list(range(10))


def test_a_store_that_fails_is_asked_again() -> None:
    async def ask() -> int:
        blocks = Blocks()
        ids = ProducerIdBlocks(blocks)  # type: ignore[arg-type]
        blocks.fails = True
        with pytest.raises(StoreError):
            await ids.next_id()
        blocks.fails = False
        return await ids.next_id()

    assert asyncio.run(ask()) == 0


def test_the_last_alarm_counts() -> None:
    async def wait() -> list[str]:
        loop = asyncio.get_running_loop()
        timer, rung = LoopTimer(loop), list[str]()
        done = asyncio.Event()

        def ring(name: str) -> Callable[[], None]:
            def note() -> None:
                rung.append(name)
                done.set()

            return note

        timer.set_alarm(timer.now() + 0.001, ring("first"))
        timer.set_alarm(timer.now() + 0.002, ring("second"))
        await done.wait()
        timer.set_alarm(timer.now(), ring("third"))
        timer.cancel()
        await asyncio.sleep(0)
        return rung

    assert asyncio.run(wait()) == ["second"]


def guard_in(state: DiskState) -> DiskGuard:
    """A guard of a disk of 1,000 MiB, by what is free of it."""
    free_mib = {DiskState.OPEN: 500, DiskState.LOW: 150, DiskState.FULL: 12}[state]
    guard = DiskGuard(free_bytes_min=100 << 20)
    assert guard.sample(Space(free_mib << 20, 1_000 << 20)) is state
    return guard


@pytest.mark.parametrize("state", DiskState)
def test_only_a_full_disk_closes_the_gate(state: DiskState) -> None:
    refusal = ProduceGate(guard_in(state))()
    assert isinstance(refusal, DiskFullError) == (state is DiskState.FULL)


def test_a_closed_gate_says_when_it_opens() -> None:
    refusal = str(ProduceGate(guard_in(DiskState.FULL))())
    assert "12 MiB free" in refusal
    assert "until 120 MiB are free" in refusal


def test_a_group_that_ends_leaves_no_coroutine_behind() -> None:
    """A request arrives while a broker fails. Each warning about a coroutine fails the test."""

    async def inner() -> int:
        raise AssertionError("nothing awaits it")

    async def middle(work: Awaitable[int]) -> int:
        return await work

    async def outer(work: Awaitable[int]) -> None:
        await work

    async def ask() -> None:
        async with asyncio.TaskGroup() as group:
            tasks = GroupTasks(group)

            async def late() -> None:
                try:
                    await asyncio.Event().wait()
                finally:
                    with pytest.raises(RuntimeError, match="shutting down"):
                        tasks.start(outer(middle(inner())))

            tasks.start(late())
            await asyncio.sleep(0)
            raise OSError("the disk failed")

    with pytest.raises(ExceptionGroup):
        asyncio.run(ask())
