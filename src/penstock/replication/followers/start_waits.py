"""`StartWaits`: deletions of records that wait until each live follower has the new log start.

Followers learn a leader's log start with the answer of a fetch, and report their own with a later
fetch. Reports are noted only while a deletion waits for the partition, so all other fetches cost
nothing. A wait ends when all live followers have reported, and with the role of the partition. It
deletes nothing.
"""

import asyncio
from collections.abc import Callable, Container
from contextlib import suppress
from typing import Final

from penstock.replication.hosted_partition import HostedPartition

LOOK_SECONDS: Final = 0.5
"""Between two looks at the brokers: a follower may be gone."""


class StartWait:
    """One deletion in one partition."""

    __slots__ = ("moved", "offset", "partition", "reported")

    def __init__(self, partition: HostedPartition, offset: int) -> None:
        self.partition = partition
        self.offset = offset
        self.reported: set[int] = set()
        """Followers whose log begins at the offset, or behind it."""
        self.moved = asyncio.Event()

    def is_reached(self, live: Container[int]) -> bool:
        """Return whether each follower among the live brokers has the new start."""
        in_sync = self.partition.state.in_sync
        # Without followers, or after the role has ended, there is nothing to wait for.
        return in_sync is None or all(
            one in self.reported for one in in_sync.followers if one in live
        )


class StartWaits:
    """The deletions that wait, by partition."""

    __slots__ = ("_waits",)

    def __init__(self) -> None:
        self._waits: dict[HostedPartition, list[StartWait]] = {}

    def __len__(self) -> int:
        return len(self._waits)

    def __contains__(self, partition: HostedPartition) -> bool:
        return partition in self._waits

    def begin(self, partition: HostedPartition, offset: int) -> StartWait:
        """Note the reports of the partition's followers starting now; `end` ends that."""
        wait = StartWait(partition, offset)
        self._waits.setdefault(partition, []).append(wait)
        return wait

    async def reached(self, wait: StartWait, live: Callable[[], Container[int]]) -> None:
        """Return when each follower that is `live` has reported the new start."""
        while not wait.is_reached(live()):
            wait.moved.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await wait.moved.wait()

    def end(self, wait: StartWait) -> None:
        """Note no more reports for it."""
        left = self._waits[wait.partition]
        left.remove(wait)
        if not left:
            del self._waits[wait.partition]

    def reported(self, partition: HostedPartition, follower: int, log_start_offset: int) -> None:
        """A follower's log begins at this offset now."""
        for wait in self._waits.get(partition, ()):
            if log_start_offset >= wait.offset:
                wait.reported.add(follower)
                wait.moved.set()
