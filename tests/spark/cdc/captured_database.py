"""A pipeline that follows a random database: its process, and how its table is compared.

`follow` runs rounds of random changes in PostgreSQL, while Kafka Connect, the pipeline and the
broker are killed by kill -9 in turn. After each round the pipeline catches up, and table and
database are compared row by row.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition

from tests.oracle.debezium import Debezium
from tests.oracle.kafka_broker import kafka_broker
from tests.oracle.penstock_broker import penstock_broker
from tests.oracle.postgres import postgres
from tests.oracle.running_broker import RunningBroker
from tests.spark.cdc.database import DDL, Orders, as_database
from tests.spark.tables.pipeline_world import World
from tests.spark.topics import end_offsets

IS_PROOF: Final = os.environ.get("PENSTOCK_PROOF") == "1"
ROUNDS: Final = int(os.environ.get("PENSTOCK_CDC_ROUNDS", "9" if IS_PROOF else "3"))
CHANGES_OF_A_ROUND: Final = 1_880 if IS_PROOF else 200
SEED: Final = int(os.environ.get("PENSTOCK_SEED", "7"))
EQUAL_SECONDS_MAX: Final = 600
SECONDS_OF_A_CHANGE: Final = 5
"""The simulated time of one change."""
KILLED: Final = ("connect", "pipeline", "broker")
TOPIC: Final = "shop.public.orders"
PARTITIONS: Final = 3
PLACEHOLDER: Final = b"__debezium_unavailable_value"
READ_SECONDS_MAX: Final = 30.0


@dataclass(frozen=True)
class Case:
    """One kind of table, and the broker before it."""

    kind: str
    broker: str
    has_history: bool = False
    is_partial: bool = False
    """Whether PostgreSQL leaves long values out of updates, and the table keeps them."""

    def __str__(self) -> str:
        way = "-history" if self.has_history else "-partial" if self.is_partial else ""
        return f"{self.kind}-{self.broker}{way}"


class Pipeline:
    """`penstock table run` as a process."""

    def __init__(self, world: World, ddl: str, case: Case) -> None:
        self._world = world
        self._case = case
        self._process: subprocess.Popen[bytes] | None = None
        self.ddl = ddl

    def start(self) -> None:
        """Write the definition, and start."""
        catalog = ", ".join(f'"{name}" = "{text}"' for name, text in self._world.catalog.items())
        definition = self._world.folder / "orders.toml"
        definition.write_text(
            f"""[pipeline]
name = "orders"
bootstrap_servers = "{self._world.bootstrap}"
checkpoint = "{self._world.folder}/checkpoint"

[source]
topics = ["{TOPIC}"]

[table]
format = "{self._world.format}"
name = "shop.orders"
mode = "upsert"
key = ["id"]
history = {json.dumps(self._case.has_history)}
partial_updates = {json.dumps(self._case.is_partial)}
catalog = {{ {catalog} }}

[value]
format = "json"
schema = "{self.ddl}"
envelope = "debezium"
sequence_by = ["source.lsn"]
"""
        )
        with (self._world.folder / "pipeline.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "penstock", "table", "run", str(definition)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1"},
            )

    def start_again(self) -> None:
        """Start if it has ended: it stops when its broker is away for long."""
        if self._process is None or self._process.poll() is not None:
            self.start()

    def kill(self) -> None:
        """Send SIGKILL, to its Java too."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._process = None


def differences(world: World, orders: Orders, *, has_history: bool) -> list[Any]:
    """What the table has and the database has not, and the reverse."""
    if not (world.folder / "warehouse" / "shop" / "orders").exists():
        return ["no table"]
    table = world.rows()
    if has_history:
        return differing_versions(table, orders)
    rows = [as_database(one) for one in table.to_pylist()]
    held = {one[0]: one for one in rows}
    expected = orders.rows()
    keys = sorted(held.keys() | expected.keys())
    found: list[Any] = [
        (held.get(key), expected.get(key)) for key in keys if held.get(key) != expected.get(key)
    ]
    return found + ["a key twice"] * (len(rows) - len(held))


def differing_versions(table: pa.Table, orders: Orders) -> list[Any]:
    """The keys whose versions are not those of the log, or do not follow each other."""
    held: dict[int, list[dict[str, Any]]] = {}
    for one in table.sort_by("_sequence").to_pylist():
        held.setdefault(one["id"], []).append(one)
    expected = orders.log()
    found: list[Any] = []
    for key in sorted(held.keys() | expected.keys()):
        own = held.get(key, [])
        rows = [None if one["_is_deleted"] else as_database(one) for one in own]
        ends = [one["_valid_from"] for one in own[1:]] + [None]
        is_current = [False] * (len(own) - 1) + [bool(own) and not own[-1]["_is_deleted"]]
        if rows != expected.get(key):
            found.append((key, *differing_rows(own, rows, expected.get(key, []))))
        elif [one["_valid_to"] for one in own] != ends:
            found.append((key, "ends", ends))
        elif [one["_is_current"] for one in own] != is_current:
            found.append((key, "is_current", is_current))
    return found


def differing_rows(
    held: list[dict[str, Any]], rows: list[Any], expected: list[Any]
) -> tuple[str, str]:
    """Return the versions of a key in short: where each is in the topic, and its content."""
    places = [f"{one['_sequence']} at {_place(one['_kafka'])}" for one in held]
    shown = ", ".join(f"{place} {_short(row)}" for place, row in zip(places, rows, strict=True))
    return f"held {shown}", f"expected {', '.join(map(_short, expected))}"


def _place(record: dict[str, Any] | None) -> str:
    return "no record" if record is None else f"{record['partition']}:{record['offset']}"


def _short(row: object) -> str:
    return "deleted" if row is None else f"{zlib.crc32(repr(row).encode()):08x}"


def wait_until_equal(
    world: World, orders: Orders, pipeline: Pipeline, *, has_history: bool
) -> None:
    deadline = time.monotonic() + EQUAL_SECONDS_MAX
    while found := differences(world, orders, has_history=has_history):
        if time.monotonic() > deadline:
            log = (world.folder / "pipeline.log").read_text()[-3_000:]
            raise AssertionError(f"{len(found)} differences, first {found[:2]}\n{log}")
        pipeline.start_again()
        time.sleep(1)


def follow(folder: Path, case: Case) -> None:
    """Run the rounds of a case, compare after each, and print what was compared."""
    chance = random.Random(SEED)
    begun = time.monotonic()
    with postgres() as database, _broker_of(case, folder / "broker") as broker:
        orders = Orders(database, SEED, sends_whole_rows=not case.is_partial)
        orders.change(100)  # the initial snapshot has these
        orders.forget_log()
        world = World(folder, case.kind, broker.bootstrap, TOPIC)
        pipeline = Pipeline(world, DDL, case)
        settings = {
            "table.include.list": "public.orders",
            "topic.creation.default.partitions": str(PARTITIONS),
            "topic.creation.default.replication.factor": "1",
        }
        kills = dict.fromkeys(KILLED, 0)
        connector = Debezium(folder / "connect", database, broker.bootstrap, settings)
        try:
            connector.start()
            for number in range(ROUNDS):
                if number == 1:
                    pipeline.kill()
                    pipeline.ddl = orders.add_column()
                pipeline.start_again()
                victim = KILLED[number % len(KILLED)]
                for _ in range(4):
                    orders.change(CHANGES_OF_A_ROUND // 4)
                    time.sleep(chance.uniform(0.0, 3.0))
                kills[victim] += 1
                if victim == "connect":
                    connector.kill()
                    orders.change(20)
                    connector.start()
                elif victim == "pipeline":
                    pipeline.kill()
                else:
                    broker.kill()
                    broker.start()
                    pipeline.start_again()
                orders.change(20)
                wait_until_equal(world, orders, pipeline, has_history=case.has_history)
        finally:
            pipeline.kill()
            connector.stop()
        unsent = _unsent_count(broker)
        assert bool(unsent) == case.is_partial, f"{unsent} events without a long value"
        rejects = world.rejects()
        assert rejects.num_rows == 0, rejects["message"].to_pylist()[:3]
        rows = world.rows().num_rows
    what = "versions equal to the log" if case.has_history else "rows equal to the database"
    way = f" with partial updates ({unsent} events without a value)" if case.is_partial else ""
    print(
        f"\ncdc {case.kind} from {case.broker}{way}: {ROUNDS} rounds, {orders.changes} changes, "
        f"{orders.changes * SECONDS_OF_A_CHANGE / 3_600:.1f} simulated hours, {rows} {what}, "
        f"kills {json.dumps(kills)}, {time.monotonic() - begun:.0f} s"
    )


def _broker_of(case: Case, folder: Path) -> RunningBroker:
    return kafka_broker(folder) if case.broker == "kafka" else penstock_broker(folder)


def _unsent_count(broker: RunningBroker) -> int:
    """Return the number of events in which Debezium left out a value."""
    ends = end_offsets(broker.bootstrap, TOPIC, PARTITIONS)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "counter"})
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
    found = 0
    with contextlib.closing(consumer):
        for _ in range(sum(ends)):
            message = consumer.poll(READ_SECONDS_MAX)
            assert message is not None, "the topic cannot be read to its end"
            assert not message.error(), message.error()
            found += PLACEHOLDER in (message.value() or b"")
    return found
