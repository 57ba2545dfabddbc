"""Expires producers without activity: the task behind `transactions.producer_*`.

Guarantees: a producer expires only after this broker saw no activity of it for the whole time of
the setting, by a clock that never jumps, and at the latest one check later. A producer with an open
transaction does not expire. It does NOT touch transactional ids: the transaction coordinator does.
"""

import asyncio

from penstock.core.clock import Clock
from penstock.core.settings.coordinator_settings import TransactionsSettings
from penstock.core.settings.tree import Settings
from penstock.node.pace import Pace
from penstock.storage.log.producer_state import ProducerStates
from penstock.storage.log_manager import LogManager

_LOGS_AT_ONCE = 16
"""Logs checked before other work gets a turn."""
_PRODUCERS_AT_ONCE = 2_000
"""Producers checked before other work gets a turn: 0.2 ms of CPU, uncompiled, if all expire. A
client can have 100,000 in one partition, and checking 60,000 of them took 10 ms."""


class ProducerExpiration:
    """Expires inactive producers of all logs."""

    def __init__(self, logs: LogManager, clock: Clock, settings: TransactionsSettings) -> None:
        self._logs = logs
        self._clock = clock
        self._settings = settings
        self._pace = Pace(settings.producer_expiration_check_interval_ms)

    def follow(self, settings: Settings) -> None:
        """Use the check interval and the expiration time of these settings."""
        self._settings = settings.transactions
        self._pace.change(self._settings.producer_expiration_check_interval_ms)

    async def run(self) -> None:
        """Check for inactive producers periodically, until it is cancelled."""
        while True:
            await self._pace.rest()
            silent_ms = self._settings.producer_expiration_ms
            logs = 0
            for log in list(self._logs.logs.values()):
                logs += 1
                await self._expire(log.producers, silent_ms)
                log.producers.verifications.expire(self._clock.now_ms() - silent_ms)
                if logs >= _LOGS_AT_ONCE:
                    logs = 0
                    await asyncio.sleep(0)

    async def _expire(self, producers: ProducerStates, silent_ms: int) -> None:
        """Expire inactive producers of one log, a few at a time."""
        producer_ids = list(producers.entries)
        for start in range(0, len(producer_ids), _PRODUCERS_AT_ONCE):
            if start:
                await asyncio.sleep(0)
            # Not the wall clock: its jumps must not expire a producer early.
            now_ms = int(self._clock.monotonic() * 1_000)
            some = producer_ids[start : start + _PRODUCERS_AT_ONCE]
            producers.expire_some(some, now_ms, silent_ms)
