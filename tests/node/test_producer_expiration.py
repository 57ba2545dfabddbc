"""Silent producers are forgotten at the pace of the settings."""

import asyncio
from itertools import pairwise

import pytest

from penstock.core.settings.coordinator_settings import TransactionsSettings
from penstock.node.pace import Pace
from penstock.node.producer_expiration import ProducerExpiration
from penstock.testing.memory_disk import MemoryDisk
from tests.storage.compacted import COMPACTED, compacted_log, keyed, put_in_transaction
from tests.storage.logs import open_manager, producer_batch

SETTINGS = TransactionsSettings(
    producer_expiration_ms=5_000, producer_expiration_check_interval_ms=2_000
)


class _Clock:
    def __init__(self) -> None:
        self.seconds = 1.0

    def now_ms(self) -> int:
        """A wall clock that jumped by years; nothing may follow it."""
        return 2**42 + int(self.seconds * 1_000)

    def monotonic(self) -> float:
        return self.seconds


def test_a_silent_producer_is_forgotten_and_one_with_a_transaction_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    manager = open_manager(MemoryDisk(), COMPACTED)
    log = compacted_log(manager)
    batch = keyed([(b"a", b"1")], timestamp_ms=1_000, producer_id=6, sequence=0)
    log.append(batch, leader_epoch=0)
    put_in_transaction(log, 7, 0, [(b"a", b"2")])
    clock = _Clock()
    known: list[list[int]] = []

    async def pause(self: Pace) -> None:
        """Time passes at once; what is known at the end of each look is kept."""
        known.append(sorted(log.producers.entries))
        if len(known) == 5:
            raise asyncio.CancelledError
        clock.seconds += self.interval_seconds

    monkeypatch.setattr(Pace, "rest", pause)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(ProducerExpiration(manager, clock, SETTINGS).run())
    assert known == [[6, 7]] * 4 + [[7]], "at the first look five seconds after the first one"


def test_a_large_table_is_looked_at_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the loop: a look at 60,000 producers of one partition was one step of 10 ms."""
    manager = open_manager(MemoryDisk(), COMPACTED)
    log = compacted_log(manager)
    for producer_id in range(5_000):
        log.append(producer_batch(0, producer_id=producer_id), leader_epoch=0)
    looks = 0
    seen = [0]

    async def pause(_: Pace) -> None:
        nonlocal looks
        looks += 1
        if looks == 2:
            raise asyncio.CancelledError

    async def watch() -> None:
        while True:
            entries = log.producers.entries
            seen.append(sum(entry.heard_ms >= 0 for entry in entries.values()))
            if len(seen) == 3:
                # The table changes while it is looked at.
                del entries[4_999]
            await asyncio.sleep(0)

    async def both() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(watch())
            await ProducerExpiration(manager, _Clock(), SETTINGS).run()

    monkeypatch.setattr(Pace, "rest", pause)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(both())
    seen.append(len(log.producers.entries))
    assert max(later - earlier for earlier, later in pairwise(seen)) <= 2_000
    assert all(entry.heard_ms >= 0 for entry in log.producers.entries.values())
    assert len(log.producers.entries) == 4_999
