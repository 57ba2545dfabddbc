"""Checks run on threads, within bounds, and a login that has ended costs nothing."""

import asyncio
import threading

import pytest

from penstock.node.security.check_threads import CheckThreads, CheckUnavailableError


def test_a_check_runs_on_a_thread() -> None:
    async def scenario() -> tuple[str, int]:
        threads = CheckThreads("test", threads_max=2, queued_max=1)
        name = await threads.run(lambda: threading.current_thread().name)
        threads.stop()
        return name, threads.pending

    assert asyncio.run(scenario()) == ("test-1", 0)


def test_an_error_is_raised_without_its_frames() -> None:
    def check() -> None:
        raise ValueError("wrong")

    async def scenario() -> None:
        threads = CheckThreads("test", threads_max=1, queued_max=1)
        with pytest.raises(ValueError, match="wrong") as raised:
            await threads.run(check)
        names = [entry.name for entry in raised.traceback]
        assert "check" not in names, "frames of a check refer to the password"
        assert threads.pending == 0
        threads.stop()

    asyncio.run(scenario())


def test_the_queue_is_bounded() -> None:
    gate = threading.Event()

    async def scenario() -> None:
        threads = CheckThreads("test", threads_max=2, queued_max=3)
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(threads.run(gate.wait)) for _ in range(5)]
            await asyncio.sleep(0)
            assert threads.pending == 5
            for _ in range(2):
                with pytest.raises(CheckUnavailableError, match="5 checks"):
                    await threads.run(gate.wait)
            assert threads.refused == 2
            gate.set()
        assert all(task.result() for task in running)
        assert await threads.run(lambda: 1) == 1
        threads.stop()

    asyncio.run(scenario())


def test_a_check_of_an_ended_login_is_not_started() -> None:
    gate = threading.Event()
    started: list[str] = []

    async def scenario() -> None:
        threads = CheckThreads("test", threads_max=1, queued_max=5)
        async with asyncio.TaskGroup() as group:
            first = group.create_task(threads.run(gate.wait))
            second = group.create_task(threads.run(lambda: started.append("second")))
            third = group.create_task(threads.run(lambda: started.append("third")))
            await asyncio.sleep(0)
            second.cancel()
            await asyncio.sleep(0)
            gate.set()
            assert await first
            await third
        assert started == ["third"]
        assert threads.pending == 0
        threads.stop()

    asyncio.run(scenario())


def test_threads_end_with_the_loop() -> None:
    gate, begun = threading.Event(), threading.Event()

    def check() -> None:
        begun.set()
        gate.wait()

    async def scenario() -> None:
        threads = CheckThreads("left-behind", threads_max=1, queued_max=5)
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(threads.run(check))
            await asyncio.to_thread(begun.wait)
            waiting.cancel()

    asyncio.run(scenario())
    [thread] = [one for one in threading.enumerate() if one.name == "left-behind-1"]
    assert thread.daemon
    gate.set()
    thread.join(10)
    assert not thread.is_alive()
