"""A bounded number of wide requests is handled at once, the others in their order."""

import asyncio

from penstock.broker.wide_permits import WidePermit, WideRequests
from penstock.core.limits import WIDE_REQUESTS_MAX


def test_the_next_one_waits_for_a_release() -> None:
    asyncio.run(_wait_for_a_release())


async def _wait_for_a_release() -> None:
    wide = WideRequests()
    held = [await wide.permit() for _ in range(WIDE_REQUESTS_MAX)]
    served: list[str] = []

    async def request(name: str) -> WidePermit:
        permit = await wide.permit()
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
        await wide.permit()


def test_a_cancelled_request_gives_its_place_on() -> None:
    asyncio.run(_cancel_one())


async def _cancel_one() -> None:
    wide = WideRequests()
    held = [await wide.permit() for _ in range(WIDE_REQUESTS_MAX)]
    async with asyncio.TaskGroup() as group:
        lost = group.create_task(wide.permit())
        next_one = group.create_task(wide.permit())
        await asyncio.sleep(0)
        held[0].release()
        lost.cancel()
    assert lost.cancelled()
    assert next_one.result() is not None
