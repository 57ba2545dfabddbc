"""Silent producers are forgotten at the pace of the settings."""

import asyncio

import pytest

from penstock.core.coordinator_settings import TransactionsSettings
from penstock.node.pace import Pace
from penstock.node.producer_expiration import ProducerExpiration
from penstock.testing.memory_disk import MemoryDisk
from tests.storage.compacted import COMPACTED, compacted_log, keyed, put_in_transaction
from tests.storage.logs import open_manager

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
