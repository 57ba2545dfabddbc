"""A judge notices the end of another broker's process by refused connections, and only by them."""

import asyncio
from collections.abc import Callable

import pytest

from penstock.core.errors import BrokerUnreachableError
from penstock.node.peers import crash_watch, refusals
from penstock.node.peers.crash_watch import CrashWatch
from penstock.node.peers.refusals import Refusals
from tests.cluster.shared_store import Cluster, run_cluster, until

LOOK_SECONDS = 0.005
LOOKS_MAX = 1_000


class Line:
    """A connection that the test breaks."""

    def __init__(self) -> None:
        self.is_lost = asyncio.Event()

    async def lost(self) -> None:
        await self.is_lost.wait()

    async def close(self) -> None:
        self.is_lost.set()


class Lines:
    """Connections to brokers, with processes that the test ends."""

    def __init__(self) -> None:
        self.on_refused: Callable[[int], None] | None = None
        self.open_lines: dict[int, Line] = {}
        self.gone: set[int] = set()
        self.unreachable: set[int] = set()
        self._refusals = Refusals()
        self.attempts = 0

    async def open(self, broker_id: int) -> Line:
        await asyncio.sleep(0)
        self.attempts += 1
        if broker_id in self.gone:
            now = asyncio.get_running_loop().time()
            if self._refusals.refused(broker_id, 1, now) and self.on_refused is not None:
                self.on_refused(broker_id)
            raise BrokerUnreachableError("refused")
        if broker_id in self.unreachable:
            raise BrokerUnreachableError("timed out")
        self._refusals.worked(broker_id, 1)
        line = self.open_lines[broker_id] = Line()
        return line

    def end(self, broker_id: int, *, refuses: bool = True) -> None:
        """End a process, or only the network to it."""
        (self.gone if refuses else self.unreachable).add(broker_id)
        self.open_lines[broker_id].is_lost.set()


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crash_watch, "RECONNECT_SECONDS", 0)
    monkeypatch.setattr(crash_watch, "RETRY_SECONDS", 0)


def registered(cluster: Cluster, broker_id: int) -> int:
    """Return the registration of a broker, 0 for none."""
    found = cluster.services[1].image.brokers.get(broker_id)
    return 0 if found is None else found.epoch


def watched(body: Callable[[Cluster, Lines, CrashWatch], "asyncio.Future[None] | object"]) -> None:
    async def main(cluster: Cluster) -> None:
        await cluster.three()
        image = await cluster.settle()
        assert image.controller is not None
        judge = image.controller.broker_id
        lines = Lines()
        watch = CrashWatch(judge, cluster.services[judge], lines)
        watch.start()
        try:
            await until(lambda: len(lines.open_lines) == 2)
            result = body(cluster, lines, watch)
            assert asyncio.iscoroutine(result)
            await result
        finally:
            await watch.stop()

    run_cluster(main)


def test_a_process_that_is_gone_loses_its_registration() -> None:
    async def body(cluster: Cluster, lines: Lines, watch: CrashWatch) -> None:
        image = await cluster.settle()
        gone = next(iter(lines.open_lines))
        epoch = image.brokers[gone].epoch
        lines.end(gone)
        await until(lambda: watch.verdict_count == 1)
        # The service in this test lives on, and registers again.
        await until(lambda: registered(cluster, gone) > epoch)

    watched(body)


def test_a_broken_network_is_no_verdict() -> None:
    async def body(cluster: Cluster, lines: Lines, watch: CrashWatch) -> None:
        before = await cluster.settle()
        lines.end(next(iter(lines.open_lines)), refuses=False)
        attempts = lines.attempts
        await until(lambda: lines.attempts >= attempts + 10)
        assert watch.verdict_count == 0
        assert (await cluster.settle()).brokers == before.brokers

    watched(body)


def test_a_broken_connection_to_a_live_broker_is_opened_again() -> None:
    async def body(_cluster: Cluster, lines: Lines, watch: CrashWatch) -> None:
        broker_id, line = next(iter(lines.open_lines.items()))
        line.is_lost.set()
        await until(lambda: lines.open_lines[broker_id] is not line)
        assert watch.verdict_count == 0

    watched(body)


def test_one_verdict_in_five_seconds() -> None:
    async def body(_cluster: Cluster, lines: Lines, watch: CrashWatch) -> None:
        first, second = lines.open_lines
        lines.end(first)
        await until(lambda: watch.verdict_count == 1)
        lines.end(second)
        attempts = lines.attempts
        await until(lambda: lines.attempts >= attempts + 10)
        assert watch.verdict_count == 1

    watched(body)


def test_a_second_crash_is_noticed_when_the_next_verdict_is_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Guards the pairs of `_keep`: the second broker was gone until its session ended."""
    monkeypatch.setattr(crash_watch, "VERDICT_SECONDS", 0.25)
    monkeypatch.setattr(crash_watch, "RETRY_SECONDS", 0.1)
    monkeypatch.setattr(refusals, "REFUSED_WITHIN_SECONDS", 0.05)

    async def body(_cluster: Cluster, lines: Lines, watch: CrashWatch) -> None:
        first, second = lines.open_lines
        lines.end(first)
        await until(lambda: watch.verdict_count == 1)
        lines.gone.remove(first)
        lines.end(second)
        for _ in range(LOOKS_MAX):
            await asyncio.sleep(LOOK_SECONDS)
            if watch.verdict_count == 2:
                return
        raise AssertionError("no second verdict")

    watched(body)
