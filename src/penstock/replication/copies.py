"""`Copies`: the partitions that are copied from one leader, and what a fetch of them does.

`replication.fetcher` carries the requests. This module chooses the partitions of the next request
(`look`), and carries out an answer (`take`): append, cut, begin anew, or pause. A partition whose
records cannot be appended, or whose log cannot be cut, waits alone.

It is compiled, so it awaits nothing in an `except` or `finally` block (decision 0004).
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Final, NamedTuple

from penstock.core.errors import PenstockError
from penstock.core.types import TopicPartition
from penstock.protocol.messages.fetch import FetchResponse, PartitionData
from penstock.replication.follower import (
    Action,
    Append,
    CommittedCutError,
    Cut,
    Follower,
    LogEnd,
    Pause,
    Phase,
    Restart,
    decide,
)
from penstock.replication.hosted_partition import HostedPartition
from penstock.replication.log_cuts import LogCuts
from penstock.replication.manager import ReplicaManager
from penstock.replication.ports import CopyThrottle, ReplicaStorage
from penstock.replication.replica_session import FETCH_WAIT_MS, FetchPosition, PartitionKey

logger = logging.getLogger(__name__)

LEFT_OUT_WAIT_MS: Final = 100
"""Longest wait of a request at the leader while partitions are left out that are synced or cut. An
idle request waits for seconds, and a producer would wait for these partitions as long."""
PAUSED_WAIT_MS_MIN: Final = 10
"""Shortest wait of a request at the leader while a partition pauses."""

Work = Callable[[], Coroutine[object, object, None]]


class Followed(NamedTuple):
    """One partition that is copied."""

    partition: HostedPartition
    follower: Follower
    is_recovering: bool
    """Whether its leader may lack acknowledged records, after an unclean election."""

    @property
    def key(self) -> PartitionKey:
        """The partition as requests name it."""
        return self.partition.topic_id, self.partition.name.partition


class Round(NamedTuple):
    """The partitions of the next request, and the ones that it leaves out for now."""

    positions: dict[PartitionKey, FetchPosition]
    is_syncing: bool
    is_cutting: bool
    wakes_at: float | None
    """When the first pause of a partition ends."""

    def wait_ms(self, now: float) -> int:
        """Return how long the leader may keep the request: others are asked for next."""
        wait_ms = LEFT_OUT_WAIT_MS if self.is_syncing or self.is_cutting else FETCH_WAIT_MS
        if self.wakes_at is None:
            return wait_ms
        return min(wait_ms, max(PAUSED_WAIT_MS_MIN, round((self.wakes_at - now) * 1000)))


class Sent(NamedTuple):
    """The partitions of a request under way."""

    generations: dict[PartitionKey, tuple[Followed, int]]
    waits: bool
    """Whether the leader may keep the request: no partition is known to be behind."""


class Copies:
    """The copies of one leader's partitions."""

    def __init__(
        self,
        replicas: ReplicaManager,
        storage: ReplicaStorage,
        cuts: LogCuts,
        throttle: CopyThrottle | None,
        on_caught_up: Callable[[TopicPartition], None],
        wake: Callable[[], None],
        start: Callable[[Work], None],
    ) -> None:
        """`wake`: a partition can be fetched again. `start`: do work beside the requests."""
        self._replicas = replicas
        self._storage = storage
        self._cuts = cuts
        self._throttle = throttle
        self._on_caught_up = on_caught_up
        self._wake = wake
        self._start = start
        self._loop = asyncio.get_running_loop()
        self._followed: dict[TopicPartition, Followed] = {}
        self._by_key: dict[PartitionKey, Followed] = {}

    def __len__(self) -> int:
        return len(self._followed)

    def add(self, partition: HostedPartition, *, is_recovering: bool) -> None:
        """Begin to copy a partition; its log is synced up to its end, or will be."""
        follower = Follower()
        if partition.log.durable_offset < partition.log.end_offset:
            follower.appended(is_synced=False)
        followed = Followed(partition, follower, is_recovering)
        self._followed[partition.name] = followed
        self._by_key[followed.key] = followed

    def remove(self, name: TopicPartition) -> None:
        """Copy a partition no more; an answer under way is dropped."""
        followed = self._followed.pop(name, None)
        if followed is None:
            return
        # The log may have another role by now: an answer must not be appended.
        followed.follower.end()
        if self._by_key.get(followed.key) is followed:
            del self._by_key[followed.key]

    def synced(self, name: TopicPartition) -> None:
        """More of a log is on the disk."""
        followed = self._followed.get(name)
        if followed is None:
            return
        log = followed.partition.log
        if log.durable_offset >= log.end_offset and followed.follower.synced():
            self._wake()

    def leader_is_silent(self) -> None:
        """The leader does not answer: a start does not wait for these partitions."""
        for name in self._followed:
            self._on_caught_up(name)

    # --- Requests ---

    def look(self, now: float, *, is_working: bool) -> Round:
        """Return the partitions that can be fetched now.

        `is_working`: work that was started has not ended. A log start that moves is reported with
        the next request, so this one is short.
        """
        positions: dict[PartitionKey, FetchPosition] = {}
        is_syncing, is_cutting = False, is_working
        wakes_at: float | None = None
        throttle = self._throttle
        if throttle is not None and not throttle.is_copying_throttled:
            throttle = None
        for followed in self._followed.values():
            follower = followed.follower
            if follower.phase is Phase.WAITING and not follower.wake(now):
                wakes_at = min(follower.wakes_at, wakes_at or follower.wakes_at)
            elif follower.phase is Phase.FETCHING:
                held_until = None
                if throttle is not None:
                    held_until = throttle.held_until(followed.partition.name)
                if held_until is None:
                    positions[followed.key] = self._position(followed)
                else:
                    wakes_at = min(held_until, wakes_at or held_until)
            elif follower.phase is Phase.SYNCING:
                is_syncing = True
            else:
                is_cutting = True
        return Round(positions, is_syncing, is_cutting, wakes_at)

    @staticmethod
    def _position(followed: Followed) -> FetchPosition:
        log = followed.partition.log
        epoch = followed.partition.state.leader_epoch
        return FetchPosition(epoch, log.end_offset, log.latest_epoch, log.log_start_offset)

    def sent(self, ready: Round) -> Sent:
        """Note that a request is sent for these partitions."""
        generations, waits = {}, True
        for key in ready.positions:
            followed = self._by_key[key]
            generations[key] = followed, followed.follower.send()
            waits = waits and followed.follower.has_caught_up
        return Sent(generations, waits)

    # --- Answers ---

    def take(self, response: FetchResponse, sent_partitions: Sent) -> None:
        """Carry out the answer of a request."""
        generations = sent_partitions.generations
        for topic in response.responses:
            assert topic.topic_id is not None, "the version names topics by id"
            for answer in topic.partitions:
                sent = generations.pop((topic.topic_id, answer.partition_index), None)
                if sent is not None and sent[0].follower.is_awaited(sent[1]):
                    self._take_one(sent[0], answer)
        for followed, generation in generations.values():
            # Nothing new: it had everything.
            if followed.follower.is_awaited(generation):
                self._caught_up(followed)

    def _take_one(self, followed: Followed, answer: PartitionData) -> None:
        partition, follower = followed.partition, followed.follower
        log = partition.log
        ends = LogEnd(log.log_start_offset, log.end_offset, partition.state.high_watermark)
        shared = log.end_offset_for_epoch(answer.diverging_epoch.epoch)
        try:
            action = decide(answer, ends, shared, is_recovering=followed.is_recovering)
            if action is not None:
                self._act(followed, action)
        except CommittedCutError as refused:
            logger.critical("%s: %s; it is not cut", partition.name, refused)
            self._replicas.refused_cuts += 1
            self._pause(follower)
        except PenstockError as error:
            logger.warning("%s cannot take the records of its leader: %s", partition.name, error)
            self._replicas.refused_answers += 1
            self._pause(follower)

    def _act(self, followed: Followed, action: Action) -> None:
        partition, follower = followed.partition, followed.follower
        match action:
            case Append():
                self._append(followed, action)
            case Cut(offset):
                self._log_cut(partition, offset)
                follower.cutting()
                cut = self._storage.truncate_log(partition.name, offset)
                self._cuts.begin(partition, cut, partial(self._cut_ended, follower))
            case Restart(offset):
                logger.warning("%s begins anew at offset %s of its leader", partition.name, offset)
                follower.cutting()
                restart = self._storage.restart_log(partition.name, offset)
                self._cuts.begin(partition, restart, partial(self._cut_ended, follower))
            case Pause(reason):
                logger.debug("%s waits: %s", partition.name, reason)
                self._on_caught_up(partition.name)
                self._pause(follower)

    @staticmethod
    def _log_cut(partition: HostedPartition, offset: int) -> None:
        committed = partition.state.high_watermark
        if offset < committed:
            logger.warning(
                "%s is cut at offset %s, below its high watermark %s: its leader was elected "
                "uncleanly and lacks these records",
                partition.name,
                offset,
                committed,
            )
        else:
            logger.info("%s is cut at offset %s, as its leader is", partition.name, offset)

    def _append(self, followed: Followed, action: Append) -> None:
        partition, follower = followed.partition, followed.follower
        log = partition.log
        if action.records:
            self._replicas.append_copied(partition, memoryview(action.records))
            if self._throttle is not None:
                is_behind = log.end_offset < action.high_watermark
                self._throttle.copied(partition.name, len(action.records), is_behind=is_behind)
            follower.appended(is_synced=log.durable_offset >= log.end_offset)
        else:
            self._caught_up(followed)
        self._replicas.follower_learned(partition, action.high_watermark)
        if action.log_start_offset > log.log_start_offset:
            self._start(partial(self._advance_start, partition, action.log_start_offset))

    def _caught_up(self, followed: Followed) -> None:
        if not followed.follower.has_caught_up:
            followed.follower.has_caught_up = True
            self._on_caught_up(followed.partition.name)

    def _pause(self, follower: Follower) -> None:
        follower.pause(self._loop.time())

    def _cut_ended(self, follower: Follower, error: PenstockError | None) -> None:
        follower.cut_done()
        if error is not None:
            self._pause(follower)
        self._wake()

    async def _advance_start(self, partition: HostedPartition, offset: int) -> None:
        """Hide records that the leader has deleted; a failure is repeated with a later answer."""
        log = partition.log
        limit = min(offset, partition.state.high_watermark, log.durable_offset)
        if limit > log.log_start_offset:
            await self._storage.advance_starts([(log, limit)])
