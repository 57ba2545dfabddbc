"""Forgets producers that were silent for long: the task behind `transactions.producer_*`.

Guarantees: a producer's last sequences go at the first look after they became too old; one with an
open transaction stays. It does NOT touch transactional ids: the transaction coordinator does.
"""

import asyncio

from penstock.core.clock import Clock
from penstock.core.coordinator_settings import TransactionsSettings
from penstock.storage.log_manager import LogManager

_LOGS_AT_ONCE = 16
"""Looked at before other work gets its turn: a log may know thousands of producers."""


async def expire_producers(logs: LogManager, clock: Clock, settings: TransactionsSettings) -> None:
    """Look for silent producers again and again, until it is cancelled."""
    while True:
        await asyncio.sleep(settings.producer_expiration_check_interval_ms / 1_000)
        now_ms = clock.now_ms()
        for count, log in enumerate(list(logs.logs.values()), start=1):
            log.producers.expire(now_ms, settings.producer_expiration_ms)
            if count % _LOGS_AT_ONCE == 0:
                await asyncio.sleep(0)
