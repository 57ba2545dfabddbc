"""A model of a large cluster: the metadata of 100,000 partitions on 100 brokers, in one process.

    python -m benchmarks.cluster_scale [--partitions N] [--brokers N]

It measures what a broker does with metadata, with the production classes and without a network:

- image: memory of the loaded metadata, and the time of the load from the store's values;
- ISR change: the events of one changed partition are applied, and the controller looks at them;
- death: a broker leaves; the controller decides about every partition and encodes the writes, and
  each broker applies them;
- timers: work of the controller's timer while nothing changes.

Exit code 1 means that a bound of the design is missed. It is NOT a measurement of etcd or of the
network; `benchmarks.cluster` has those.
"""

import argparse
import gc
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from rich.console import Console
from rich.table import Table

from penstock.cluster import values
from penstock.cluster.changes import Change
from penstock.cluster.elections import election_writes, member_decision
from penstock.cluster.image import BrokerImage, Endpoint, MetadataImage, PartitionImage, TopicImage
from penstock.cluster.keys import Keys
from penstock.cluster.link.controlling import concerns
from penstock.cluster.link.followed_image import FollowedImage
from penstock.cluster.link.preferred_leaders import PreferredLeaders
from penstock.cluster.partition_values import write_partition
from penstock.cluster.stores.port import (
    NO_SESSION,
    Event,
    EventBatch,
    KeyValue,
    Put,
    Snapshot,
)
from penstock.testing.memory_store import MemoryMetadataStore

REPLICAS: Final = 3
PARTITIONS_PER_TOPIC: Final = 100
LARGE_TOPIC: Final = 10_000
"""Partitions of the largest topic."""
FIRST_REVISION: Final = 10_000_000
"""A cluster that has existed for some time; small numbers would cost no memory."""
CHANGES: Final = 1_000
ROUNDS: Final = 3
"""Other work of the machine can only slow a round down, so the fastest one counts."""

IMAGE_BYTES_MAX: Final = 120_000_000
CHANGE_SECONDS_MAX: Final = 100e-6
DEATH_SECONDS_MAX: Final = 1.0
TIMER_SECONDS_MAX: Final = 1e-3


@dataclass(frozen=True)
class Figures:
    """The figures of one model."""

    partitions: int
    brokers: int
    image_bytes: int
    load_seconds: float
    change_seconds: float
    large_change_seconds: float
    """Of a partition in the largest topic."""
    decide_seconds: float
    """Death of a broker: decisions and encoded writes of the controller."""
    apply_seconds: float
    """Death of a broker: the writes, applied to the image of each broker."""
    changed_partitions: int
    timer_seconds: float

    @property
    def death_seconds(self) -> float:
        """CPU time of the controller for the death of a broker."""
        return self.decide_seconds + self.apply_seconds

    def text(self) -> str:
        """Return the figures in one line."""
        large = f"{self.large_change_seconds * 1e6:.0f} us in a topic of {LARGE_TOPIC:,} partitions"
        return (
            f"cluster of {self.partitions:,} partitions on {self.brokers} brokers: image "
            f"{self.image_bytes / 1e6:.0f} MB, load {self.load_seconds:.2f} s, ISR change "
            f"{self.change_seconds * 1e6:.0f} us ({large}), death of a broker "
            f"{self.death_seconds:.2f} s for {self.changed_partitions:,} partitions, timer "
            f"{self.timer_seconds * 1e6:.0f} us"
        )

    def missed(self, slowness: float = 1.0) -> list[str]:
        """Return the bounds that are missed, on a machine that is this much slower."""
        rows = (
            ("image", self.image_bytes, IMAGE_BYTES_MAX),
            ("ISR change", self.change_seconds, CHANGE_SECONDS_MAX * slowness),
            ("death of a broker", self.death_seconds, DEATH_SECONDS_MAX * slowness),
            ("timer", self.timer_seconds, TIMER_SECONDS_MAX * slowness),
        )
        return [f"{name}: {value:g} > {bound:g}" for name, value, bound in rows if value > bound]


class Model:
    """The keys of a large cluster, and the image of one of its brokers."""

    def __init__(self, partitions: int, brokers: int) -> None:
        self.keys = Keys()
        self.partitions = partitions
        self.brokers = brokers
        self.revision = FIRST_REVISION
        self.followed = FollowedImage(MemoryMetadataStore(), self.keys)

    @property
    def image(self) -> MetadataImage:
        """The newest image."""
        return self.followed.newest

    def pairs(self) -> Iterator[KeyValue]:
        """Yield every key of the cluster, each at a revision of its own."""
        for broker in range(self.brokers):
            yield self._pair(self.keys.node(broker), values.write_node(f"directory-{broker}"))
            endpoint = Endpoint("PLAINTEXT", f"broker-{broker}.example.com", 9092)
            registered = BrokerImage(broker, (endpoint,), None, f"directory-{broker}", 0)
            yield self._pair(self.keys.broker(broker), values.write_broker(registered))
        yield self._pair(self.keys.controller(), values.write_controller(0, self._broker_epoch(0)))
        number = 0
        for topic, count in enumerate(self._topic_sizes()):
            topic_id = UUID(int=(topic << 64) + 0xC0FFEE)
            for index in range(count):
                number += 1
                key = self.keys.partition(topic_id, index)
                yield self._pair(key, write_partition(self._state(number)))
            name = f"topic-{topic:05}"
            yield self._pair(
                self.keys.topic(name), values.write_topic(values.TopicValue(topic_id, count))
            )

    def _topic_sizes(self) -> list[int]:
        sizes: list[int] = []
        left = self.partitions
        while left:
            size = LARGE_TOPIC if not sizes and left > LARGE_TOPIC else PARTITIONS_PER_TOPIC
            sizes.append(min(size, left))
            left -= sizes[-1]
        return sizes

    def _pair(self, key: str, value: bytes) -> KeyValue:
        self.revision += 1
        return KeyValue(key, value, self.revision, self.revision, NO_SESSION)

    def _broker_epoch(self, broker: int) -> int:
        return FIRST_REVISION + 2 * broker + 2

    def _state(self, number: int) -> PartitionImage:
        """Return the state of a partition; different ones have different epochs."""
        replicas = tuple(
            (number + step * (1 + number // self.brokers)) % self.brokers
            for step in range(REPLICAS)
        )
        if len({*replicas}) < REPLICAS:
            replicas = tuple((number + step) % self.brokers for step in range(REPLICAS))
        epochs = tuple(self._broker_epoch(one) for one in replicas)
        return PartitionImage(
            replicas, replicas[0], number % 97, replicas, 0, epochs[0], epochs, min_isr=2
        )

    def take(self, events: Sequence[tuple[str, bytes | None]]) -> None:
        """Apply the events of one revision."""
        self.revision += 1
        found = tuple(
            Event(
                key, None if value is None else KeyValue(key, value, 1, self.revision, NO_SESSION)
            )
            for key, value in events
        )
        self.followed._take(EventBatch(self.revision, found))


def measured(work: Callable[[], object]) -> float:
    """Return the CPU seconds of a call."""
    gc.collect()
    begin = time.process_time()
    work()
    return time.process_time() - begin


def load(partitions: int, brokers: int) -> tuple[Model, float]:
    """Return a model with a loaded image, and the CPU seconds of the load."""
    model = Model(partitions, brokers)
    pairs = tuple(model.pairs())
    snapshot = Snapshot(model.revision, pairs)
    seconds = measured(lambda: model.followed._load(snapshot))
    return model, seconds


def image_bytes(partitions: int, brokers: int) -> int:
    """Return the memory of a loaded image, without the values that it was loaded from."""
    model = Model(partitions, brokers)
    snapshot = Snapshot(0, tuple(model.pairs()))
    gc.collect()
    tracemalloc.start()
    model.followed._load(Snapshot(model.revision, snapshot.values))
    gc.collect()
    found, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return found


def change_seconds(model: Model, topic: TopicImage) -> float:
    """Return the CPU seconds of one change of the in-sync replicas of a partition."""
    preferred = PreferredLeaders()
    preferred.examine(model.image, 0.0)

    def looks(_before: MetadataImage, image: MetadataImage, changes: tuple[Change, ...]) -> None:
        preferred.follow(image, changes)
        assert not concerns(image, changes), "the model has an unsettled partition"

    unsubscribe = model.followed.subscribe(looks)
    batches = []
    for number in range(CHANGES):
        index = (number * 7919) % len(topic.partitions)
        state = topic.partitions[index]
        isr, epochs = state.isr[: 2 + number % 2], state.isr_epochs[: 2 + number % 2]
        value = write_partition(state._replace(isr=isr, isr_epochs=epochs))
        batches.append((model.keys.partition(topic.id, index), value))

    def change() -> None:
        for batch in batches:
            model.take([batch])

    seconds = min(measured(change) for _ in range(ROUNDS)) / CHANGES
    unsubscribe()
    return seconds


def death(model: Model, broker: int) -> tuple[float, float, int]:
    """Return the seconds to decide and to apply, and the number of changed partitions."""
    model.take([(model.keys.broker(broker), None)])
    transactions: list[list[tuple[str, bytes | None]]] = []

    def decide() -> None:
        decision = member_decision(model.image, lambda _topic: False)
        for writes in election_writes(model.keys, model.image, decision, ()):
            puts = [one for one in writes.operations if isinstance(one, Put)]
            transactions.append([(one.key, one.value) for one in puts])

    def apply() -> None:
        for transaction in transactions:
            model.take(transaction)

    decided, applied = measured(decide), measured(apply)
    return decided, applied, sum(map(len, transactions))


def timer_seconds(model: Model) -> float:
    """Return the CPU seconds of one look of the controller's timer, when nothing has changed."""
    preferred = PreferredLeaders()
    # The first one, after the role was taken, looks at everything.
    preferred.examine(model.image, 0.0)
    return min(measured(lambda: preferred.examine(model.image, 1.0)) for _ in range(ROUNDS))


def measure(partitions: int, brokers: int) -> Figures:
    """Return the figures of a model of this size."""
    size = image_bytes(partitions, brokers)
    model, seconds = load(partitions, brokers)
    topics = sorted(model.image.topics.values(), key=lambda topic: len(topic.partitions))
    small, large = topics[len(topics) // 2], topics[-1]
    timer = timer_seconds(model)
    changed, changed_large = change_seconds(model, small), change_seconds(model, large)
    decided, applied, count = death(model, brokers // 2)
    return Figures(
        partitions, brokers, size, seconds, changed, changed_large, decided, applied, count, timer
    )


def main(words: Sequence[str]) -> int:
    """Print the figures; return 1 if a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--partitions", type=int, default=100_000)
    parser.add_argument("--brokers", type=int, default=100)
    given = parser.parse_args(words)
    found = measure(given.partitions, given.brokers)
    table = Table("figure", "value", "bound")
    table.add_row("image", f"{found.image_bytes / 1e6:.0f} MB", f"{IMAGE_BYTES_MAX / 1e6:.0f} MB")
    table.add_row("load", f"{found.load_seconds:.2f} s", "")
    table.add_row(
        "ISR change", f"{found.change_seconds * 1e6:.0f} us", f"{CHANGE_SECONDS_MAX * 1e6:.0f} us"
    )
    table.add_row("ISR change, largest topic", f"{found.large_change_seconds * 1e6:.0f} us", "")
    table.add_row(
        f"death of a broker, {found.changed_partitions:,} partitions changed",
        f"{found.death_seconds:.2f} s ({found.decide_seconds:.2f} to decide)",
        f"{DEATH_SECONDS_MAX:.0f} s",
    )
    table.add_row("timer, nothing changed", f"{found.timer_seconds * 1e6:.0f} us", "1000 us")
    console = Console()
    console.print(table)
    missed = found.missed()
    print(found.text())
    for one in missed:
        print(f"missed: {one}")
    return min(1, len(missed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
