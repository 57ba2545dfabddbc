"""Throttles of copies between brokers: the bytes a second for replicas that are not in sync.

Kafka's settings: `leader.replication.throttled.rate` and `follower.replication.throttled.rate` of a
broker, `leader.replication.throttled.replicas` and `follower.replication.throttled.replicas` of a
topic. Guarantees:

- Over time, the throttled replicas of one broker together get no more than the rate: an answer that
  is larger than the rate allows is followed by a pause that is as much longer.
- A replica that is in sync is never throttled, nor one that the lists do not name.
- A changed rate or list is in force at once, also for a replica that pauses.

Without these settings nothing is looked up for a partition. A throttle holds partitions back; it
does not make an answer smaller.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from penstock.cluster.changes import (
    BrokerSettingsChanged,
    Change,
    TopicPublished,
    TopicRemoved,
    TopicSettingsChanged,
)
from penstock.cluster.configs.broker_configs import FOLLOWER_RATE, LEADER_RATE
from penstock.cluster.configs.topic_configs import (
    FOLLOWER_REPLICAS,
    LEADER_REPLICAS,
    throttled_partitions,
)
from penstock.cluster.image import MetadataImage
from penstock.cluster.keys import ALL_BROKERS
from penstock.core.errors import InvalidTopicConfigError
from penstock.core.types import TopicPartition
from penstock.replication.hosted_partition import HostedPartition
from penstock.replication.ports import PartitionMetadata
from penstock.replication.waits import WaitTable

BURST_SECONDS: Final = 1.0
"""Time whose bytes may be copied at once after a pause."""
STOPPED_SECONDS: Final = 1.0
"""Until the next look at a partition whose rate is 0."""
UNLIMITED: Final = 2**63 - 1


class RateLimit:
    """Bytes a second. Pure: the caller has the clock."""

    __slots__ = ("_free_at", "rate")

    def __init__(self) -> None:
        self.rate: int | None = None
        """None for no limit."""
        self._free_at = 0.0

    def change(self, rate: int | None, now: float) -> None:
        """Use another rate; bytes that were copied too early still count."""
        owed_bytes = max(0.0, self._free_at - now) * (self.rate or 0)
        self.rate = rate
        self._free_at = now + owed_bytes / rate if rate and owed_bytes else now

    def spend(self, size_bytes: int, now: float) -> None:
        """Bytes were copied."""
        if self.rate:
            self._free_at = max(self._free_at, now - BURST_SECONDS) + size_bytes / self.rate

    def held_until(self, now: float) -> float | None:
        """Return until when nothing may be copied; None if it may be now."""
        if self.rate is None:
            return None
        if self.rate == 0:
            return now + STOPPED_SECONDS
        return self._free_at if self._free_at > now else None


class Throttle:
    """The throttle of one side, with the replicas that it is for."""

    def __init__(self, rate_name: str, replicas_name: str, broker_id: int) -> None:
        self._rate_name = rate_name
        self._replicas_name = replicas_name
        self._broker_id = broker_id
        self.limit = RateLimit()
        self._partitions: dict[str, frozenset[int] | None] = {}
        """By topic: the throttled partitions of this broker; None for all."""

    @property
    def is_active(self) -> bool:
        """Whether there is anything to hold back."""
        return self.limit.rate is not None and bool(self._partitions)

    def names(self, name: TopicPartition) -> bool:
        """Return whether this broker's replica of a partition is throttled while out of sync."""
        if name.topic not in self._partitions:
            return False
        numbers = self._partitions[name.topic]
        return numbers is None or name.partition in numbers

    def follow_rate(self, image: MetadataImage, now: float) -> bool:
        """Take over the rate of an image; return whether it has changed."""
        rate = _rate(image, self._broker_id, self._rate_name)
        if rate == self.limit.rate:
            return False
        self.limit.change(rate, now)
        return True

    def follow_topic(self, name: str, settings: Mapping[str, str]) -> bool:
        """Take over the settings of a topic; return whether its throttled replicas have changed."""
        before = self._partitions.get(name, frozenset())
        text = settings.get(self._replicas_name, "")
        found: frozenset[int] | None = frozenset()
        if text:
            found = _partitions(self._replicas_name, text, self._broker_id)
        self._partitions.pop(name, None)
        if found is None or found:
            self._partitions[name] = found
        return before != found


def _rate(image: MetadataImage, broker_id: int, name: str) -> int | None:
    own = image.settings_of_broker(str(broker_id)).get(name)
    text = own if own is not None else image.settings_of_broker(ALL_BROKERS).get(name)
    if text is None or int(text) == UNLIMITED:
        return None
    return int(text)


def _partitions(name: str, text: str, broker_id: int) -> frozenset[int] | None:
    """Return the throttled partitions of a broker; None for all."""
    try:
        return throttled_partitions(name, text, broker_id)
    except InvalidTopicConfigError:
        # A newer broker has written it. A copy without a limit is better than none.
        return frozenset()


class Throttles:
    """Both throttles of this broker, which follow the metadata."""

    def __init__(self, broker_id: int, metadata: PartitionMetadata, waits: WaitTable) -> None:
        self._broker_id = broker_id
        self._metadata = metadata
        self._waits = waits
        self._loop = asyncio.get_running_loop()
        self._sending = Throttle(LEADER_RATE, LEADER_REPLICAS, broker_id)
        self._copying = Throttle(FOLLOWER_RATE, FOLLOWER_REPLICAS, broker_id)
        self._held: dict[TopicPartition, HostedPartition] = {}
        """Partitions that a follower asked for in vain."""
        self._caught_up: set[TopicPartition] = set()
        """Throttled partitions that have all that was committed at their last answer."""
        self._alarm: asyncio.TimerHandle | None = None
        self.on_change: Callable[[], None] | None = None
        """Called when partitions that this broker copies may have to be looked at again."""

    # --- Settings ---

    def start(self) -> Callable[[], None]:
        """Take over the settings of the image, then follow each new one; returns how to end."""
        image = self._metadata.image
        self._rates_changed(image)
        for topic in image.topics.values():
            if topic.settings:
                self._topics_changed(topic.name, topic.settings)
        return self._metadata.subscribe(self._follow)

    def stop(self) -> None:
        """Wake no more fetches that were held back so far."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _follow(
        self, _before: MetadataImage, image: MetadataImage, changes: tuple[Change, ...]
    ) -> None:
        is_changed = False
        for change in changes:
            match change:
                case BrokerSettingsChanged():
                    is_changed |= self._rates_changed(image)
                case TopicSettingsChanged(name=name) | TopicPublished(name=name):
                    topic = image.topic(name)
                    settings = {} if topic is None else topic.settings
                    is_changed |= self._topics_changed(name, settings)
                case TopicRemoved(name):
                    self._topics_changed(name, {})
                case _:
                    pass
        if is_changed:
            self._look_again()

    def _rates_changed(self, image: MetadataImage) -> bool:
        now = self._loop.time()
        changed = [one.follow_rate(image, now) for one in (self._sending, self._copying)]
        return any(changed)

    def _topics_changed(self, name: str, settings: Mapping[str, str]) -> bool:
        changed = [one.follow_topic(name, settings) for one in (self._sending, self._copying)]
        return any(changed)

    def _look_again(self) -> None:
        self._wake(tuple(self._held.values()))
        if self.on_change is not None:
            self.on_change()

    # --- A leader that sends ---

    def holds_back(self, partition: HostedPartition, follower: int) -> bool:
        """Return whether a follower gets no records of a partition now; it is woken later."""
        if not self._is_limited(partition, follower):
            return False
        until = self._sending.limit.held_until(self._loop.time())
        if until is None:
            return False
        self._held[partition.name] = partition
        if self._alarm is None:
            self._alarm = self._loop.call_at(until, self._ring)
        return True

    def sent(self, partition: HostedPartition, follower: int, size_bytes: int) -> None:
        """Records of a partition are in an answer to a follower."""
        if self._is_limited(partition, follower):
            self._sending.limit.spend(size_bytes, self._loop.time())

    def _is_limited(self, partition: HostedPartition, follower: int) -> bool:
        if not self._sending.is_active or not self._sending.names(partition.name):
            return False
        in_sync = partition.state.in_sync
        return in_sync is not None and follower not in in_sync.state.isr

    def _ring(self) -> None:
        self._alarm = None
        self._wake(tuple(self._held.values()))

    def _wake(self, partitions: Iterable[HostedPartition]) -> None:
        # A pause of an earlier rate must not outlast the next ones.
        self.stop()
        self._held.clear()
        for partition in partitions:
            self._waits.appended(partition.waits)

    # --- A follower that copies ---

    @property
    def is_copying_throttled(self) -> bool:
        """Whether `held_until` must be asked for a partition."""
        return self._copying.is_active

    def held_until(self, name: TopicPartition) -> float | None:
        """Return until when a partition is not copied; None if it is copied now."""
        if not self._copying.names(name) or self._is_in_sync(name):
            self._caught_up.discard(name)
            return None
        if name in self._caught_up:
            return None
        return self._copying.limit.held_until(self._loop.time())

    def copied(self, name: TopicPartition, size_bytes: int, *, is_behind: bool) -> None:
        """Records of a partition have come; `is_behind`: committed ones are still missing.

        One that is not behind fetches, as in Kafka: its leader must hear that it has everything.
        """
        if self._copying.is_active and self._copying.names(name) and not self._is_in_sync(name):
            self._copying.limit.spend(size_bytes, self._loop.time())
            if is_behind:
                self._caught_up.discard(name)
            else:
                self._caught_up.add(name)

    def _is_in_sync(self, name: TopicPartition) -> bool:
        state = self._metadata.image.partition(*name)
        return state is None or self._broker_id in state.isr
