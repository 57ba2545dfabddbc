"""The garbage collector of a broker: a collection visits some thousand objects at most.

A collection stops every thread, and its time grows with the objects that it visits. Python's own
schedule visits all of them from time to time: 2.8 s of CPU were measured while a client asked for
sixty thousand partitions at a time. The memory of requests is freed by reference counts and leaves
no cycles behind. Therefore:

- objects that the start created are not visited;
- objects that survive two collections, or one that took long, are not visited again;
- a full collection, for cycles that became garbage late, runs only while the process is idle.

The threads of the interpreter are prepared here too (`prepare_threads`).
"""

import asyncio
import gc
import logging
import sys
import time
from typing import Final

from penstock.core.limits import INTERPRETER_SWITCH_SECONDS
from penstock.records import scan

logger = logging.getLogger(__name__)

OBJECTS_BETWEEN_COLLECTIONS: Final = 3_000
"""Objects created and not freed. A collection visits this many or, every second time, twice as
many: 0.6 ms, where 20,000 took 6 ms. All collections together take the same time. Python's default
of 700 collects several times for each burst of requests."""
LONG_SECONDS: Final = 0.001
"""A collection that takes longer visited large containers, such as the names of a wide request. No
later collection visits them again."""
NEVER: Final = 1_000_000_000
"""Collections of the middle generation before Python collects the oldest."""

FULL_COLLECTION_SECONDS: Final = 600.0
"""Time between two full collections."""
FULL_COLLECTION_OBJECTS_MIN: Final = 100_000
"""Objects that are not visited any more, since the last full collection: 50 MB or so. With fewer a
full collection is not worth its pause."""
LOOK_SECONDS: Final = 5.0
IDLE_CPU_SHARE_MAX: Final = 0.01
"""A process that used less of a processor since the last check is idle."""


def calm() -> None:
    """Start to collect as described above; present objects are not visited."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS, 1, NEVER)
    gc.callbacks.append(_Survivors().collected)
    gc.enable()


class _Survivors:
    """Decides after each collection whether its survivors are visited again."""

    def __init__(self) -> None:
        self._begun = 0.0

    def collected(self, phase: str, info: dict[str, int]) -> None:
        """Called by Python before and after each collection."""
        now = time.perf_counter()
        if phase == "start":
            self._begun = now
        elif info["generation"] == 1 or now - self._begun > LONG_SECONDS:
            gc.freeze()


async def collect_when_idle() -> None:
    """Run full collections while the process is idle, until cancelled."""
    frozen_before = gc.get_freeze_count()
    collected_at, cpu_before = time.monotonic(), time.process_time()
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        now, cpu = time.monotonic(), time.process_time()
        is_idle = cpu - cpu_before < IDLE_CPU_SHARE_MAX * LOOK_SECONDS
        cpu_before = cpu
        if not is_idle or now - collected_at < FULL_COLLECTION_SECONDS:
            continue
        # Checked last: counting a million objects takes 50 ms.
        if gc.get_freeze_count() - frozen_before >= FULL_COLLECTION_OBJECTS_MIN:
            found = collect_all()
            logger.info(
                "collected garbage while idle: %d objects in %.2f s",
                found,
                time.process_time() - cpu,
            )
            frozen_before, collected_at = gc.get_freeze_count(), now
            cpu_before = time.process_time()


def collect_all() -> int:
    """Run a full collection now; return the number of garbage objects."""
    gc.unfreeze()
    found = gc.collect()
    gc.freeze()
    return found


def prepare_threads() -> None:
    """Shorten the interpreter's switch interval, for the event loop beside decoding threads."""
    sys.setswitchinterval(INTERPRETER_SWITCH_SECONDS)
    if not scan.COMPILED:
        logger.warning(
            "running without compiled modules: produce is slower. Install a C compiler and "
            "reinstall Penstock, or set PENSTOCK_COMPILE=1 if it was switched off."
        )
