"""`Runtime`: all shards of one internal topic on this broker.

It finds the shard of a partition, loads shards one after the other, and passes on the events of all
of them: changes of the cluster's topics, and the stop. `coordinator.driver` runs one shard; which
key belongs to which partition is NOT known here.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator
from typing import Final

from penstock.coordinator.driver import Answer, Phase, ShardDriver
from penstock.coordinator.metadata_view import TopicsView
from penstock.coordinator.ports import Alarm, Effects, Journal, Tasks
from penstock.coordinator.shard import Asked, Producer, Shard
from penstock.coordinator.timers import Timers
from penstock.core.clock import Clock
from penstock.core.deferred import Deferred
from penstock.core.errors import NotCoordinatorError


class Runtime:
    """The shards of one internal topic."""

    def __init__(
        self,
        topic: str,
        *,
        make_shard: Callable[[], Shard],
        topics: Callable[[], TopicsView],
        clock: Clock,
        alarm: Alarm,
        effects: Effects,
        tasks: Tasks,
    ) -> None:
        self.topic: Final = topic
        self._make_shard = make_shard
        self._topics = topics
        self._clock = clock
        self._timers = Timers(alarm)
        self._effects = effects
        self._tasks = tasks
        self._drivers: dict[int, ShardDriver] = {}
        self._to_load: deque[ShardDriver] = deque()
        self._is_loading = False
        self._is_stopped = False

    def __contains__(self, partition: int) -> bool:
        return partition in self._drivers

    def __iter__(self) -> Iterator[ShardDriver]:
        return iter(self._drivers.values())

    @property
    def timer_count(self) -> int:
        """Timers that are set, over all shards."""
        return len(self._timers)

    def driver(self, partition: int) -> ShardDriver | None:
        """The driver of a partition, if this broker has it."""
        return self._drivers.get(partition)

    def open(
        self, partition: int, journal: Journal, make_shard: Callable[[], Shard] | None = None
    ) -> None:
        """Serve a partition: at once when its log is empty, else when the log is read.

        `make_shard` is for a partition whose shards differ from the others', by their epoch.
        """
        assert partition not in self._drivers, partition
        if self._is_stopped:
            return
        driver = ShardDriver(
            f"{self.topic}-{partition}",
            journal,
            make_shard=make_shard or self._make_shard,
            topics=self._topics,
            clock=self._clock,
            timers=self._timers,
            effects=self._effects,
            tasks=self._tasks,
        )
        self._drivers[partition] = driver
        if driver.serve_if_empty():
            return
        self._to_load.append(driver)
        if not self._is_loading:
            self._is_loading = True
            self._tasks.start(self._load_all())

    async def _load_all(self) -> None:
        """Load shards one by one: the first are served while the last are read."""
        try:
            while self._to_load:
                driver = self._to_load.popleft()
                if driver.phase is not Phase.CLOSED:
                    await driver.load()
        finally:
            self._is_loading = False

    def close(self, partition: int) -> None:
        """Stop serving a partition that this broker no longer has."""
        driver = self._drivers.pop(partition, None)
        if driver is not None:
            driver.close(NotCoordinatorError(f"{driver.name} was taken away from this broker"))

    def stop(self) -> None:
        """The broker stops: answer the waiting requests with an error, and serve no more."""
        self._is_stopped = True
        for driver in self._drivers.values():
            driver.close(NotCoordinatorError("this broker stops"))

    def ask(self, partition: int, asked: Asked) -> Answer:
        """Pass a request to the shard of a partition."""
        driver = self._drivers.get(partition)
        if driver is None:
            answer: Answer = Deferred()
            answer.set(NotCoordinatorError(f"{self.topic}-{partition} is not on this broker"))
            return answer
        return driver.ask(asked)

    def marker_written(self, partition: int, producer: Producer, *, commits: bool) -> None:
        """The end of a transaction was appended to a partition, just now."""
        driver = self._drivers.get(partition)
        if driver is not None:
            driver.marker_written(producer, commits=commits)

    def topics_changed(self, topics: TopicsView, gone: Collection[str]) -> None:
        """Pass changed topics to every shard; `gone` are deleted or created anew."""
        for driver in tuple(self._drivers.values()):
            driver.topics_changed(topics, gone)
