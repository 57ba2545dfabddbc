"""The simulated loop: virtual time, order, pauses, crashes and threads."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.cluster_sim.loop import SimulatedLoop, UnhandledError
from tests.cluster_sim.threads import simulated_process


def run(body: Callable[[SimulatedLoop], Coroutine[Any, Any, None]], seed: int = 1) -> SimulatedLoop:
    loop = SimulatedLoop(seed)  # type: ignore[abstract]
    with simulated_process(loop, seed):
        try:
            loop.run_until_complete(body(loop))
        finally:
            loop.end()
    return loop


def test_time_is_virtual() -> None:
    began = time.monotonic()

    async def body(loop: SimulatedLoop) -> None:
        before = time.monotonic()
        await asyncio.sleep(3_600)
        assert 3_600 <= time.monotonic() - before < 3_601
        assert loop.time() == time.monotonic()

    run(body)
    assert time.monotonic() - began < 10


def test_one_machine_keeps_the_order_of_its_callbacks() -> None:
    async def body(loop: SimulatedLoop) -> None:
        seen: dict[str, list[int]] = {"a": [], "b": []}
        mixed: list[str] = []
        for name, numbers in seen.items():
            machine = loop.add_machine(name)

            def note(number: int, numbers: list[int] = numbers, name: str = name) -> None:
                numbers.append(number)
                mixed.append(name)

            for number in range(20):
                loop.call_soon(note, number, context=machine.context.copy())
                loop.call_later(0.5, note, 100 + number, context=machine.context.copy())
        await asyncio.sleep(1)
        expected = [*range(20), *range(100, 120)]
        assert seen == {"a": expected, "b": expected}

    run(body)


def test_a_paused_machine_runs_later() -> None:
    async def body(loop: SimulatedLoop) -> None:
        machine = loop.add_machine("broker")
        times: list[float] = []

        async def tick() -> None:
            while True:
                times.append(loop.time())
                await asyncio.sleep(1)

        loop.start(machine, tick())
        await asyncio.sleep(2.5)
        machine.is_paused = True
        paused_at = loop.time()
        await asyncio.sleep(10)
        assert times[-1] < paused_at
        machine.is_paused = False
        await asyncio.sleep(0.1)
        assert times[-1] > paused_at + 9.9

    run(body)


def test_a_crash_runs_no_finally_and_drops_timers() -> None:
    ended: list[str] = []

    async def body(loop: SimulatedLoop) -> None:
        machine = loop.add_machine("broker")

        async def work() -> None:
            try:
                await asyncio.sleep(1)
            finally:
                ended.append("finally")

        loop.start(machine, work())
        loop.at(machine, 0.7, ended.append, "timer")
        await asyncio.sleep(0.5)
        loop.crash(machine)
        await asyncio.sleep(5)
        assert not ended

    run(body)


def test_an_error_that_nothing_handles_ends_the_run() -> None:
    async def body(loop: SimulatedLoop) -> None:
        loop.call_soon(lambda: 1 // 0)
        await asyncio.sleep(1)

    with pytest.raises(UnhandledError, match="ZeroDivisionError"):
        run(body)


def test_a_blocked_machine_does_not_block_the_others() -> None:
    async def body(loop: SimulatedLoop) -> None:
        slow, fast = loop.add_machine("slow"), loop.add_machine("fast")
        times: dict[str, float] = {}

        async def work(name: str) -> None:
            if name == "slow":
                loop.block(0.5)
            await asyncio.sleep(0)
            times[name] = loop.time() - began

        began = loop.time()
        loop.start(slow, work("slow"))
        loop.start(fast, work("fast"))
        await asyncio.sleep(1)
        assert times["fast"] < 0.1
        assert 0.5 <= times["slow"] < 0.6

    run(body)


def test_threads_and_executors_are_callbacks() -> None:
    async def body(loop: SimulatedLoop) -> None:
        began = loop.time()

        def work() -> str:
            time.sleep(0.25)
            return threading.current_thread().name

        assert await asyncio.to_thread(work) == threading.main_thread().name
        assert 0.25 <= loop.time() - began < 0.3

    run(body)


def test_a_seed_decides_the_order_of_machines() -> None:
    def order(seed: int) -> list[str]:
        seen: list[str] = []

        async def body(loop: SimulatedLoop) -> None:
            for name in "abcdef":
                loop.at(loop.add_machine(name), 0.5, seen.append, name)
            await asyncio.sleep(1)

        run(body, seed)
        return seen

    assert order(3) == order(3)
    assert len({tuple(order(seed)) for seed in range(6)}) > 1
