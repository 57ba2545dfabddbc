"""`in_slices` yields everything once and in order, and yields the loop when its time is up."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.pacing.slices import SLICE_ITEMS, NextTurn, in_slices
from penstock.broker.pacing.turns import TurnBudget
from penstock.core.limits import CONNECTION_TURN_SECONDS, TURN_SECONDS
from tests.storage.logs import Clock


@given(
    count=st.integers(0, 1_000),
    item_microseconds=st.integers(0, 500),
)
def test_no_slice_is_much_longer_than_a_turn(count: int, item_microseconds: int) -> None:
    async def run() -> None:
        clock = Clock()
        turns = TurnBudget(asyncio.get_running_loop().call_soon)
        item_seconds = item_microseconds / 1_000_000
        seen: list[int] = []
        slice_began = 0.0
        yields_before = 0
        async for few in in_slices(range(count), turns, clock):
            if turns.yields != yields_before:
                slice_began, yields_before = clock.seconds, turns.yields
            seen += few
            clock.seconds += item_seconds * len(few)
            longest = CONNECTION_TURN_SECONDS + SLICE_ITEMS * item_seconds
            assert clock.seconds - slice_began <= longest + 1e-9
        assert seen == list(range(count))
        if count * item_seconds < CONNECTION_TURN_SECONDS:
            assert turns.yields == 0

    asyncio.run(run())


def test_others_run_between_two_slices() -> None:
    """A callback that is due while a long loop runs is not behind all of it."""

    async def run() -> None:
        clock, loop = Clock(), asyncio.get_running_loop()
        turns = TurnBudget(loop.call_soon)
        done_at: list[float] = []
        loop.call_soon(lambda: done_at.append(clock.seconds))
        async for few in in_slices(range(100 * SLICE_ITEMS), turns, clock):
            clock.seconds += CONNECTION_TURN_SECONDS * len(few) / SLICE_ITEMS
        assert done_at
        assert done_at[0] <= 2 * CONNECTION_TURN_SECONDS

    asyncio.run(run())


def test_many_loops_share_a_turn() -> None:
    """Guards `NextTurn`: 150 wide fetches at once were one pause of 0.4 s."""
    loops, slices = 60, 5

    async def run() -> None:
        clock, loop = Clock(), asyncio.get_running_loop()
        turns = TurnBudget(loop.call_soon)
        longest = last = 0.0

        def tick() -> None:
            nonlocal longest, last
            longest, last = max(longest, clock.seconds - last), clock.seconds
            if clock.seconds < loops * slices * CONNECTION_TURN_SECONDS:
                loop.call_soon(tick)

        async def work() -> None:
            async for few in in_slices(range(slices * SLICE_ITEMS), turns, clock):
                clock.seconds += CONNECTION_TURN_SECONDS * len(few) / SLICE_ITEMS

        async with asyncio.TaskGroup() as group:
            loop.call_soon(tick)
            for _ in range(loops):
                group.create_task(work())
        assert clock.seconds == pytest.approx(loops * slices * CONNECTION_TURN_SECONDS)
        # All that begin and all that continue in one turn.
        assert longest <= 2 * TURN_SECONDS + 1e-9

    asyncio.run(run())


def test_short_loops_share_a_turn_too() -> None:
    """Guards `NextTurn.end`: work that ends in its first slice counts as well."""

    async def run() -> None:
        clock, loop = Clock(), asyncio.get_running_loop()
        turns = TurnBudget(loop.call_soon)
        async with asyncio.TaskGroup() as group:

            async def work() -> None:
                async for _ in in_slices(range(1), turns, clock):
                    clock.seconds += CONNECTION_TURN_SECONDS / 2

            for _ in range(60):
                group.create_task(work())
            await asyncio.sleep(0)
            assert clock.seconds <= TURN_SECONDS + 1e-9

    asyncio.run(run())


def test_a_cancelled_task_leaves_the_queue_working() -> None:
    async def run() -> None:
        clock, loop = Clock(), asyncio.get_running_loop()
        turns = TurnBudget(loop.call_soon)
        cancelled, kept = NextTurn(turns, clock), NextTurn(turns, clock)
        clock.seconds += 2 * CONNECTION_TURN_SECONDS
        first = asyncio.ensure_future(cancelled.wait_if_due())  # noqa: TID251 (awaited below)
        second = asyncio.ensure_future(kept.wait_if_due())  # noqa: TID251 (awaited below)
        await asyncio.sleep(0)
        first.cancel()
        await second
        assert first.cancelled() or first.done()

    asyncio.run(run())
