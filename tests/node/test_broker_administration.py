"""Settings of a broker that were changed over the wire: kept, and stronger than the file."""

import asyncio
from pathlib import Path

from penstock.cluster.controller import NewTopic
from penstock.cluster.image import BrokerImage, Endpoint, TopicImage
from penstock.cluster.service import MetadataService
from penstock.cluster.stores.sqlite_store import SqliteMetadataStore
from penstock.core.clock import SystemClock
from penstock.core.settings.tree import Settings, settings_of
from penstock.core.types import PLAINTEXT
from penstock.protocol.error_codes import ErrorCode
from penstock.testing import Broker
from tests.broker.handlers.asker import Asker, batch_of
from tests.broker.handlers.configs import BROKER, DELETE, SET, TOPIC, increment
from tests.broker.handlers.test_create_topics import create
from tests.broker.handlers.test_create_topics import topic as new_topic
from tests.broker.handlers.test_describe_configs import ask, configs_in

OWN, STATIC = 2, 4


def on_disk(folder: Path, **defaults: int) -> Settings:
    return settings_of(
        {
            "listener.port": 0,
            "node.data_dir": str(folder),
            **{f"topic_defaults.{name}": value for name, value in defaults.items()},
        }
    )


def retention(asker: Asker, topic: str) -> tuple[str | None, int]:
    found = configs_in(ask(asker, TOPIC, topic, ("retention.ms",)))["retention.ms"]
    return found.value, found.config_source


def test_a_change_outlives_the_broker_and_wins_over_its_file(tmp_path: Path) -> None:
    edit = ("log.retention.ms", SET, "8000")
    with Broker(on_disk(tmp_path, retention_ms=5_000)) as broker, Asker(broker.port) as asker:
        asker.create("orders")
        assert retention(asker, "orders") == ("5000", STATIC)
        assert increment(asker, BROKER, "1", edit).error_code == ErrorCode.NONE
        assert retention(asker, "orders") == ("8000", OWN)
    with Broker(on_disk(tmp_path, retention_ms=6_000)) as broker, Asker(broker.port) as asker:
        assert retention(asker, "orders") == ("8000", OWN)
        asker.create("payments")
        assert retention(asker, "payments") == ("8000", OWN)
        gone = increment(asker, BROKER, "1", ("log.retention.ms", DELETE, None))
        assert gone.error_code == ErrorCode.NONE
        assert retention(asker, "orders") == ("6000", STATIC)


def test_logs_follow_while_they_run_and_when_they_are_opened_again(tmp_path: Path) -> None:
    edit = ("log.segment.bytes", SET, "1048576")
    with Broker(on_disk(tmp_path)) as broker, Asker(broker.port) as asker:
        asker.create("orders")
        assert increment(asker, BROKER, "", edit).error_code == ErrorCode.NONE
        assert segments_after(asker, tmp_path, batches=3) == 3
    with Broker(on_disk(tmp_path)) as broker, Asker(broker.port) as asker:
        assert segments_after(asker, tmp_path, batches=2) == 5


def segments_after(asker: Asker, folder: Path, *, batches: int) -> int:
    """How many files `orders` has, after this many batches of which no two fit into one."""
    for _ in range(batches):
        assert asker.produce("orders", batch_of(b"x" * 600_000)).error_code == ErrorCode.NONE
    return len(list((folder / "orders-0").glob("*.log")))


LAG = ("log.cleaner.min.compaction.lag.ms", SET, "1000")
SHORTER = {"max.compaction.lag.ms": "500", "retention.ms": "-1"}


def test_a_new_topic_must_go_with_what_the_broker_gives_by_default(tmp_path: Path) -> None:
    with Broker(on_disk(tmp_path)) as broker, Asker(broker.port) as asker:
        assert increment(asker, BROKER, "", LAG).error_code == ErrorCode.NONE
        (refused,) = create(asker, new_topic("orders", configs=SHORTER))
        assert refused.error_code == ErrorCode.INVALID_CONFIG
        assert asker.describe("orders").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with Broker(on_disk(tmp_path)) as broker, Asker(broker.port) as asker:
        assert create(asker, new_topic("orders"))[0].error_code == ErrorCode.NONE


def test_stored_settings_that_contradict_the_defaults_stop_no_start(tmp_path: Path) -> None:
    with Broker(on_disk(tmp_path)) as broker, Asker(broker.port) as asker:
        assert increment(asker, BROKER, "", LAG).error_code == ErrorCode.NONE
    asyncio.run(store_unchecked(tmp_path, NewTopic(name="orders", settings=SHORTER)))
    for _ in range(2):
        with Broker(on_disk(tmp_path)) as broker, Asker(broker.port) as asker:
            assert asker.produce("orders", batch_of(b"x")).error_code == ErrorCode.NONE
            # Contradictory settings are left out; the topic's other settings still count.
            assert retention(asker, "orders") == ("-1", 1)


async def store_unchecked(folder: Path, topic: NewTopic) -> None:
    """Store a topic as a broker did that did not look at its own defaults."""
    store = await SqliteMetadataStore.open(f"{folder}/metadata.sqlite3", clock=SystemClock())
    async with asyncio.TaskGroup() as tasks:
        metadata = MetadataService(store)
        await metadata.start(tasks)
        await metadata.register_broker(
            BrokerImage(1, (Endpoint(PLAINTEXT, "h", 1),), None, "d", 0), tasks
        )
        (made,) = await metadata.create_topics([topic])
        assert isinstance(made, TopicImage)
        await metadata.stop()
    await store.close()
