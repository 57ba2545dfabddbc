"""A bounded number of wide requests is handled at once, the others in their order."""

import asyncio

from penstock.broker.pacing.wide_permits import WidePermit, WideRequests
from penstock.core.cancellation import Cancellation
from penstock.core.limits import WIDE_REQUESTS_MAX


async def place(wide: WideRequests, client: Cancellation | None = None) -> WidePermit:
    permit = await wide.permit(client)
    assert permit is not None
    return permit


def test_the_next_one_waits_for_a_release() -> None:
    asyncio.run(_wait_for_a_release())


async def _wait_for_a_release() -> None:
    wide = WideRequests()
    held = [await place(wide) for _ in range(WIDE_REQUESTS_MAX)]
    served: list[str] = []

    async def request(name: str) -> WidePermit:
        permit = await place(wide)
        served.append(name)
        return permit

    async with asyncio.TaskGroup() as group:
        waiting = [group.create_task(request(name)) for name in ("first", "second")]
        await asyncio.sleep(0)
        assert served == []
        held[0].release()
        held[0].release()
        await asyncio.sleep(0)
        assert served == ["first"]
        held[1].release()
    assert served == ["first", "second"]
    for permit in (*held, *(task.result() for task in waiting)):
        permit.release()
    # All places are free again.
    for _ in range(WIDE_REQUESTS_MAX):
        await place(wide)


def test_a_cancelled_request_gives_its_place_on() -> None:
    asyncio.run(_cancel_one())


async def _cancel_one() -> None:
    wide = WideRequests()
    held = [await place(wide) for _ in range(WIDE_REQUESTS_MAX)]
    async with asyncio.TaskGroup() as group:
        lost = group.create_task(wide.permit())
        next_one = group.create_task(wide.permit())
        await asyncio.sleep(0)
        held[0].release()
        lost.cancel()
    assert lost.cancelled()
    assert next_one.result() is not None


def test_a_request_whose_client_is_gone_waits_no_longer() -> None:
    """Guards `WideRequests.permit`: 54 clients that went left 2.6 GB of requests in memory."""
    asyncio.run(_lose_clients())


async def _lose_clients() -> None:
    wide, client, gone = WideRequests(), Cancellation(), Cancellation()
    gone.cancel()
    assert await wide.permit(gone) is None
    held = [await place(wide) for _ in range(WIDE_REQUESTS_MAX)]
    async with asyncio.TaskGroup() as group:
        lost = group.create_task(wide.permit(client))
        next_one = group.create_task(place(wide, Cancellation()))
        await asyncio.sleep(0)
        client.cancel()
        assert await lost is None
        assert not next_one.done()
        held[0].release()
    # A place that was given is kept, although the client goes in the same turn.
    late = Cancellation()
    async with asyncio.TaskGroup() as group:
        last = group.create_task(place(wide, late))
        await asyncio.sleep(0)
        next_one.result().release()
        late.cancel()
    for permit in (*held[1:], last.result()):
        permit.release()
    for _ in range(WIDE_REQUESTS_MAX):
        await asyncio.wait_for(place(wide), 5)
