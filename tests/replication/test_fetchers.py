"""`Fetchers`: logs that must not be copied, and a fetcher that ends."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from penstock.cluster.link import lasting
from penstock.core.errors import LogBusyError, QuarantinedLogError, StorageError
from penstock.replication.fetcher import Identity
from penstock.replication.fetchers import Fetchers
from penstock.replication.log_cuts import LogCuts
from tests.replication.replicas import Node
from tests.replication.test_leader_fetcher import Leader, NoStorage, follow, until_asked


def run(act: Callable[[Node, Leader, Fetchers], Awaitable[None]]) -> None:
    async def begin() -> None:
        node, leader = Node(), Leader()
        fetchers = Fetchers(
            leader,
            node.replicas,
            NoStorage(),
            LogCuts(node.replicas),
            lambda: Identity(2, 12),
            lag_seconds=10.0,
        )
        try:
            await act(node, leader, fetchers)
        finally:
            await fetchers.stop()

    asyncio.run(begin())


@pytest.mark.parametrize(
    ("problem", "count"), [(None, 1), (LogBusyError("cut"), 1), (QuarantinedLogError("bad"), 0)]
)
def test_a_damaged_log_is_not_copied(problem: StorageError | None, count: int) -> None:
    """It would fetch at the end of its log, and count as in sync."""

    async def act(node: Node, _leader: Leader, fetchers: Fetchers) -> None:
        partition = follow(node, node.partition)
        partition.log.problem = problem
        fetchers.add(partition, is_recovering=False)
        assert len(fetchers) == count

    run(act)


def test_a_fetcher_whose_call_is_cancelled_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards `kept`: this broker followed that leader no more, and nothing said so."""
    monkeypatch.setattr(lasting, "PAUSE_SECONDS", 0.0)

    async def act(node: Node, leader: Leader, fetchers: Fetchers) -> None:
        fetchers.add(follow(node, node.partition), is_recovering=False)
        await until_asked(leader, 1)
        leader.answers[0].cancel()
        await until_asked(leader, 2)

    run(act)
