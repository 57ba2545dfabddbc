"""The plan of one run: its seed, length, mode, clients and faults. It is JSON for the workers."""

import dataclasses
import json
from typing import Literal

Via = Literal["assign", "subscribe"]
Library = Literal["confluent-kafka", "kafka-python", "aiokafka"]

PARTITIONS_OF_A_TOPIC = 2
OLD_MS = 3 * 86_400_000
"""The age of a backfill's records: more than a producer is remembered, less than is retained."""
GROUP = "history"
TOPIC_SETTINGS = {"segment.ms": "2000", "index.interval.bytes": "512"}
"""Segments roll all the time: what a transaction leaves behind crosses their borders."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """One run. The seed decides every choice, not the timing of processes."""

    seed: int = 1
    seconds: float = 20.0
    """Of load under faults; healing and reading everything come after it."""
    via: Via = "assign"
    in_transactions: bool = False
    protocol: Literal["classic", "consumer"] = "classic"
    """The group protocol of clients that have both."""
    libraries: tuple[Library, ...] = ("confluent-kafka", "confluent-kafka", "confluent-kafka")
    """One worker for each."""
    topics: int = 3
    faults: tuple[str, ...] = ("kill-broker", "stop-broker", "kill-client", "stop-client", "zombie")
    pause_seconds: float = 3.0
    """Between two faults, about."""
    client_stop_seconds: float = 8.0
    """A stopped client sleeps up to so long: beyond its session and its transaction."""
    think_seconds: float = 0.0
    """A client takes up to so long before each step of a transaction, and before its commit."""
    upheavals: tuple[str, ...] = ()
    """What operators do meanwhile, among the faults: see `upheaval`. They need four topics."""
    has_old_timestamps: bool = False
    """Records are three days old, as those of a backfill."""
    ends_with_power_cut: bool = False
    """The load ends with a cut that takes all clients with it: nobody repeats what is lost."""
    transaction_timeout_ms: int = 6_000
    session_timeout_ms: int = 6_000
    """The least that Apache Kafka takes."""

    @property
    def keys(self) -> tuple[int, ...]:
        """One key for each partition."""
        return tuple(range(self.topics * PARTITIONS_OF_A_TOPIC))

    @property
    def topic_names(self) -> tuple[str, ...]:
        """All topics."""
        return tuple(f"history-{number}" for number in range(self.topics))

    def to_json(self) -> str:
        """For a worker's command line."""
        return json.dumps(dataclasses.asdict(self))

    @property
    def name(self) -> str:
        """For reports and file names."""
        kind = "transactions" if self.in_transactions else "plain"
        protocol = f"-{self.protocol}" if self.via == "subscribe" else ""
        upheaval = "-upheaval" if self.upheavals else ""
        return f"{self.via}{protocol}-{kind}{upheaval}-seed-{self.seed}"


def plan_from_json(text: str) -> Plan:
    """The other way."""
    fields = json.loads(text)
    for name in ("libraries", "faults", "upheavals"):
        fields[name] = tuple(fields[name])
    return Plan(**fields)


def partition_of(key: int) -> tuple[str, int]:
    """Topic and partition of a key."""
    return f"history-{key // PARTITIONS_OF_A_TOPIC}", key % PARTITIONS_OF_A_TOPIC


def key_of(topic: str, partition: int) -> int:
    """The other way."""
    return int(topic.removeprefix("history-")) * PARTITIONS_OF_A_TOPIC + partition


def transactional_id_of(slot: int) -> str:
    """A worker's successor takes it over."""
    return f"slot-{slot}"
