"""Forgets producers that were silent for long: the task behind `transactions.producer_*`.

Guarantees: a producer's last sequences go at the first look after they became too old; one with an
open transaction stays. It does NOT touch transactional ids: the transaction coordinator does.
"""

import asyncio

from penstock.core.clock import Clock
from penstock.core.coordinator_settings import TransactionsSettings
from penstock.core.settings import Settings
from penstock.node.pace import Pace
from penstock.storage.log_manager import LogManager

_LOGS_AT_ONCE = 16
"""Looked at before other work gets its turn: a log may know thousands of producers."""


class ProducerExpiration:
    """Forgets silent producers of all logs."""

    def __init__(self, logs: LogManager, clock: Clock, settings: TransactionsSettings) -> None:
        self._logs = logs
        self._clock = clock
        self._settings = settings
        self._pace = Pace(settings.producer_expiration_check_interval_ms)

    def follow(self, settings: Settings) -> None:
        """Look as often, and forget as early, as these say."""
        self._settings = settings.transactions
        self._pace.change(self._settings.producer_expiration_check_interval_ms)

    async def run(self) -> None:
        """Look for silent producers again and again, until it is cancelled."""
        while True:
            await self._pace.rest()
            now_ms = self._clock.now_ms()
            for count, log in enumerate(list(self._logs.logs.values()), start=1):
                log.producers.expire(now_ms, self._settings.producer_expiration_ms)
                if count % _LOGS_AT_ONCE == 0:
                    await asyncio.sleep(0)
