"""Actions of operators while clients work: settings, deletions, compaction, retention, new topics.

Each is recorded in the history as an operation of a process of its own, so that the checker knows
which values may be missing; one that fails or is not answered is recorded as that. Every topic has
its own lot: removals of different kinds in one topic would explain each other away.

The settings of a topic change all the time, and none of them may cost a record.
"""

import contextlib
import dataclasses
import random
import time
from collections.abc import Callable, Iterator, Mapping

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from tests.checker.history import Action, Cut, Name, Op, Type
from tests.histories.plan import PARTITIONS_OF_A_TOPIC, TOPIC_SETTINGS, Plan, partition_of

PROCESS = 1
"""Workers count from a thousand on."""
CALL_SECONDS = 5.0
RETENTION_SECONDS = 0.8
"""With `retention.ms` at 1: the broker looks every 200 ms."""
SETTLE_SECONDS = 0.6
"""Until a pass of retention that has begun is over."""
DELETED_TOPIC, RETAINED_TOPIC, COMPACTED_TOPIC, RECREATED_TOPIC = range(4)
KEPT = {"retention.ms": "-1"}
HARMLESS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("compression.type", ("producer", "gzip", "zstd", "lz4", "snappy", "uncompressed")),
    ("max.message.bytes", ("100000", "1048588")),
    ("segment.ms", ("500", "2000", "60000")),
    ("segment.bytes", ("1048576", "104857600")),
    ("index.interval.bytes", ("512", "4096")),
    ("retention.bytes", ("-1", "1073741824")),
    ("message.timestamp.type", ("CreateTime",)),
    ("flush.messages", ("1", "10000")),
)
"""Settings that may change at any time, each with values that this load stays within."""


class Upheaval:
    """Does and records the actions that the nemesis requests."""

    def __init__(self, plan: Plan, bootstrap: str) -> None:
        self._plan = plan
        self._bootstrap = bootstrap
        self._dice = random.Random(f"{plan.seed}/upheaval")
        self._is_compacting = False
        self.entries: list[Op] = []
        self.kinds: dict[str, Callable[[Mapping[int, int]], None]] = {
            "delete-records": self.delete_records,
            "retention": self.retain,
            "compaction": self.compact,
            "settings": self.change_settings,
            "recreate": self.recreate,
        }

    def _admin(self) -> AdminClient:
        # A client that lost the broker may wait for long: a new one sends at once. The caller keeps
        # it until the answer has arrived: a closed client never answers.
        return AdminClient({"bootstrap.servers": self._bootstrap, "log_level": 0})

    @contextlib.contextmanager
    def _noted(
        self, name: Name, actions: tuple[Action, ...] = (), keys: tuple[int, ...] = ()
    ) -> Iterator[None]:
        """An entry for the beginning and one for the end; an error leaves the end open."""
        op = Op(0, time.monotonic_ns(), PROCESS, "invoke", name, actions, keys)
        self.entries.append(op)
        type_: Type = "info"
        error = ""
        try:
            yield
            type_ = "ok"
        except (KafkaException, TimeoutError) as caught:
            error = str(caught)
        finally:
            now_ns = time.monotonic_ns()
            end = dataclasses.replace(op, time_ns=now_ns, type=type_, error=error)
            self.entries.append(end)

    def _keys_of(self, topic: int) -> tuple[int, ...]:
        first = topic * PARTITIONS_OF_A_TOPIC
        return tuple(range(first, first + PARTITIONS_OF_A_TOPIC))

    def _set(self, topic: int, values: dict[str, str]) -> None:
        name = self._plan.topic_names[topic]
        entries = [
            ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET)
            for setting, value in values.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
        admin = self._admin()
        for future in admin.incremental_alter_configs(
            [resource], request_timeout=CALL_SECONDS
        ).values():
            future.result(CALL_SECONDS)

    # --- Actions of operators ---

    def change_settings(self, _highest: Mapping[int, int]) -> None:
        """A setting that no record depends on, of any topic that stays."""
        topic = self._dice.choice((DELETED_TOPIC, RETAINED_TOPIC, COMPACTED_TOPIC))
        setting, values = self._dice.choice(HARMLESS)
        with contextlib.suppress(KafkaException, TimeoutError):
            self._set(topic, {setting: self._dice.choice(values)})

    def delete_records(self, highest: Mapping[int, int]) -> None:
        """Everything below some offset of one partition."""
        key = self._dice.choice(self._keys_of(DELETED_TOPIC))
        offset = self._dice.randrange(highest.get(key, 0) + 1)
        if offset == 0:
            return
        with self._noted("delete-records", (Cut({key: offset}),)):
            wanted = [TopicPartition(*partition_of(key), offset)]
            admin = self._admin()
            for future in admin.delete_records(wanted, request_timeout=CALL_SECONDS).values():
                future.result(CALL_SECONDS)

    def retain(self, _highest: Mapping[int, int]) -> None:
        """`retention.ms` of one millisecond for a moment."""
        with self._noted("retain", keys=self._keys_of(RETAINED_TOPIC)):
            try:
                self._set(RETAINED_TOPIC, {"retention.ms": "1"})
                time.sleep(RETENTION_SECONDS)
            finally:
                self._set(RETAINED_TOPIC, KEPT)
            time.sleep(SETTLE_SECONDS)

    def compact(self, _highest: Mapping[int, int]) -> None:
        """`cleanup.policy` becomes compact, with short segments, and later delete again."""
        self._is_compacting = not self._is_compacting
        policy = "compact" if self._is_compacting else "delete"
        with self._noted("compact", keys=self._keys_of(COMPACTED_TOPIC)):
            self._set(
                COMPACTED_TOPIC,
                {
                    "cleanup.policy": policy,
                    "min.cleanable.dirty.ratio": "0.01",
                    "segment.ms": "500",
                    **KEPT,
                },
            )

    def recreate(self, _highest: Mapping[int, int]) -> None:
        """Delete a topic, and create another one of its name."""
        name = self._plan.topic_names[RECREATED_TOPIC]
        with self._noted("recreate", keys=self._keys_of(RECREATED_TOPIC)):
            admin = self._admin()
            for future in admin.delete_topics([name], operation_timeout=CALL_SECONDS).values():
                future.result(CALL_SECONDS)
            self._create(name)

    def _create(self, name: str) -> None:
        new = NewTopic(name, PARTITIONS_OF_A_TOPIC, 1, config=TOPIC_SETTINGS)
        admin = self._admin()
        for future in admin.create_topics([new]).values():
            future.result(CALL_SECONDS)

    # --- The end ---

    def heal(self) -> None:
        """Nothing is removed any more, and every topic is there."""
        for topic in range(len(self._plan.topic_names)):
            if topic == RECREATED_TOPIC:
                with contextlib.suppress(KafkaException):
                    self._create(self._plan.topic_names[topic])
            else:
                self._set(topic, KEPT)
        time.sleep(SETTLE_SECONDS)
