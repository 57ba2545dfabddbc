"""Transactions that a stop or a failing coordinator leaves behind: they end, and no client waits.

A client could hang on a transactional id that is CONCURRENT_TRANSACTIONS for ever, or on offsets
that stay UNSTABLE_OFFSET_COMMIT because their marker was never written.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.coordinator.groups.shard import GroupShard
from penstock.coordinator.ports import LoadedBatch
from penstock.coordinator.shard import Asked, Outcome, Ticket
from penstock.coordinator.transactions.effects import WriteMarkers
from penstock.coordinator.transactions.shard import TransactionShard
from penstock.core.settings.tree import settings_of
from penstock.node.coordination.journal import PartitionJournal
from penstock.node.coordination.transaction_effects import TransactionEffects
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.describe_transactions import DescribeTransactionsRequest
from penstock.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from penstock.testing import Broker
from tests.broker.handlers.asker import SECONDS_MAX, Asker
from tests.broker.handlers.test_txn_offset_commit import (
    commit,
    fetch_request,
    fetched,
    until_stable,
)
from tests.broker.handlers.transactional import Transactional, find_coordinator
from tests.node.test_transactions import (
    TOPIC,
    committed_values,
    produce,
    state_of,
    until,
)

GROUP = "readers"
GROUP_KEY = 0
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT

Writes = Callable[[TransactionEffects, WriteMarkers], Awaitable[None]]


@contextmanager
def started(data_dir: Path, **more: object) -> Iterator[Asker]:
    values = {
        "node.data_dir": str(data_dir),
        "listener.port": 0,
        "transactions.state_partitions": 3,
        "groups.offsets_partitions": 3,
        **{f"transactions.{key}": value for key, value in more.items()},
    }
    with Broker(settings_of(values)) as broker, Asker(broker.port) as asker:
        yield asker


def open_transaction(asker: Asker, *, timeout_ms: int = 60_000) -> Transactional:
    """One that has a record and an offset in it."""
    asker.create(TOPIC)
    find_coordinator(asker, GROUP, GROUP_KEY)
    transactional = Transactional(asker, "bank").init()
    answer = transactional.ask_init(timeout_ms=timeout_ms)
    transactional.producer_id, transactional.epoch = answer.producer_id, answer.producer_epoch
    assert produce(transactional, b"a") == ErrorCode.NONE
    assert commit(transactional, GROUP, TOPIC, {0: 10}) == [ErrorCode.NONE]
    return transactional


async def for_ever(_effects: TransactionEffects, _effect: WriteMarkers) -> None:
    """No marker is written."""
    await asyncio.get_running_loop().create_future()


def written_then_for_ever(original: Writes) -> Writes:
    """The markers are written, and the coordinator does not hear of it."""

    async def write(effects: TransactionEffects, effect: WriteMarkers) -> None:
        await original(effects, effect)
        await for_ever(effects, effect)

    return write


def replace_writes(patch: pytest.MonkeyPatch, writes: Writes) -> None:
    patch.setattr(TransactionEffects, "_write_markers", writes)


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("is_written", [True, False])
def test_a_decided_transaction_is_finished_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_written: bool, commits: bool
) -> None:
    with monkeypatch.context() as patch:
        original = TransactionEffects._write_markers
        replace_writes(patch, written_then_for_ever(original) if is_written else for_ever)
        with started(tmp_path) as asker:
            transactional = open_transaction(asker)
            transactional.end(commits=commits)
            assert state_of(asker, "bank") == ("PrepareCommit" if commits else "PrepareAbort")
            if not is_written:
                assert fetched(asker, GROUP, TOPIC, stable=True)[0] == UNSTABLE
    with started(tmp_path) as asker:
        done = "CompleteCommit" if commits else "CompleteAbort"
        until(lambda: state_of(asker, "bank") == done)
        assert until_stable(asker, GROUP, TOPIC) == (10 if commits else -1)
        transactional.asker = asker
        assert produce(transactional, b"b") == ErrorCode.NONE
        transactional.end(commits=True)
        until(lambda: b"b" in committed_values(asker))


def test_a_late_transaction_is_aborted_by_the_next_start(tmp_path: Path) -> None:
    with started(tmp_path) as asker:
        open_transaction(asker, timeout_ms=500)
    with started(tmp_path, timeout_check_interval_ms=20) as asker:
        until(lambda: state_of(asker, "bank") == "CompleteAbort")
        assert until_stable(asker, GROUP, TOPIC) == -1
        assert Transactional(asker, "bank").init().epoch > 0


def fail_once(patch: pytest.MonkeyPatch, kind: type, request: type) -> None:
    """The shard has a defect that one request finds, once."""
    original = kind.handle  # type: ignore[attr-defined]
    left = [1]

    def handle(self: object, asked: Asked, ticket: Ticket, now_ms: int) -> Outcome:
        if isinstance(asked.request, request) and left:
            left.pop()
            raise RuntimeError("on purpose")
        outcome: Outcome = original(self, asked, ticket, now_ms)
        return outcome

    patch.setattr(kind, "handle", handle)


def test_markers_are_written_by_the_coordinator_that_takes_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, attempts = TransactionEffects._write_markers, []

    async def write(effects: TransactionEffects, effect: WriteMarkers) -> None:
        attempts.append(effect)
        await (for_ever if len(attempts) == 1 else original)(effects, effect)

    replace_writes(monkeypatch, write)
    with started(tmp_path) as asker:
        open_transaction(asker).end(commits=True)
        fail_once(monkeypatch, TransactionShard, DescribeTransactionsRequest)
        until(lambda: state_of(asker, "bank") == "CompleteCommit")
        assert len(attempts) == 2
        assert until_stable(asker, GROUP, TOPIC) == 10


@pytest.mark.parametrize("commits", [True, False])
def test_a_group_that_is_loaded_again_still_knows_which_offsets_are_pending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, commits: bool
) -> None:
    with started(tmp_path) as asker:
        transactional = open_transaction(asker)
        fail_once(monkeypatch, GroupShard, OffsetFetchRequest)
        assert fetched(asker, GROUP, TOPIC, stable=True)[0] == UNSTABLE
        transactional.end(commits=commits)
        assert until_stable(asker, GROUP, TOPIC) == (10 if commits else -1)


def test_a_marker_that_comes_while_a_group_is_loaded_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_read = threading.Event()
    original = PartitionJournal.read

    async def read(self: PartitionJournal, offset: int) -> tuple[Sequence[LoadedBatch], int]:
        found = await original(self, offset)
        await asyncio.to_thread(may_read.wait, SECONDS_MAX)
        return found

    with started(tmp_path) as asker, Asker(asker.port) as other:
        transactional = open_transaction(asker)
        monkeypatch.setattr(PartitionJournal, "read", read)
        fail_once(monkeypatch, GroupShard, OffsetFetchRequest)
        request = fetch_request(GROUP, TOPIC, stable=True)
        first = other.ask(request, 9, OffsetFetchResponse)
        assert first.groups[0].error_code == ErrorCode.NOT_COORDINATOR
        second = other.ask(request, 9, OffsetFetchResponse)
        assert second.groups[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        transactional.end(commits=True)
        until(lambda: state_of(asker, "bank") == "CompleteCommit")
        may_read.set()
        assert until_stable(asker, GROUP, TOPIC) == 10
