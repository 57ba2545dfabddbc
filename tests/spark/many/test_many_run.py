"""Many tables in one process, with a real broker and Spark: new topics, failures, kills.

Each table is compared with the records of its topic.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

import pytest

from penstock.testing import Broker
from tests.spark.tables.pipeline_world import World

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

SECONDS_MAX = 240.0
POLL_SECONDS = 0.2
DEFINITION = """
[pipeline]
name = "shop"
bootstrap_servers = "{bootstrap}"
checkpoint = "{folder}/checkpoint"

[source]
pattern = '^{prefix}\\.(?P<entity>.+)$'

[table]
format = "{kind}"
name = "shop.{{entity}}"
catalog = {catalog}

[value]
format = "json"
schema = "id bigint, name string"

[trigger]
interval = "1 second"
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


class Shop:
    """A definition, and the topics of its pattern."""

    def __init__(self, folder: Path, broker: Broker, kind: str) -> None:
        self.prefix = f"{kind}{os.urandom(3).hex()}"
        self.world = World(folder, kind, f"{broker.host}:{broker.port}", "none")
        self.file = folder / "shop.toml"
        catalog = ", ".join(
            f"{name} = {json.dumps(text)}" for name, text in self.world.catalog.items()
        )
        self.file.write_text(
            DEFINITION.format(
                bootstrap=self.world.bootstrap,
                folder=folder,
                prefix=self.prefix,
                kind=kind,
                catalog=f"{{ {catalog} }}",
            )
        )
        self._broker = broker
        self.sent: dict[str, list[int]] = {}

    def send(self, entity: str, ids: Sequence[int]) -> None:
        """Send records to a topic, and create it if it is new."""
        topic = f"{self.prefix}.{entity}"
        if entity not in self.sent:
            run("topic", "create", topic, "--partitions", "2", bootstrap=self.world.bootstrap)
        lines = "".join(f'{{"id": {one}, "name": "n{one}"}}\n' for one in ids)
        run("produce", topic, bootstrap=self.world.bootstrap, given=lines)
        self.sent.setdefault(entity, []).extend(ids)

    def held(self, entity: str) -> list[int]:
        """The ids in a table; nothing without a table."""
        try:
            return sorted(self.world.rows(f"shop.{entity}").column("id").to_pylist())
        except Exception as error:
            if "NoSuch" in type(error).__name__ or "NotFound" in type(error).__name__:
                return []
            raise

    def wait_for_all(self, entities: Sequence[str]) -> None:
        """Wait until the tables have what was sent."""
        deadline = monotonic() + SECONDS_MAX
        while {one: self.held(one) for one in entities} != {
            one: sorted(self.sent[one]) for one in entities
        }:
            assert monotonic() < deadline, {one: self.held(one) for one in entities}
            sleep(POLL_SECONDS)


def run(*words: str, bootstrap: str, given: str = "") -> str:
    """Run a command of Penstock."""
    done = subprocess.run(
        [sys.executable, "-m", "penstock", *words, "--bootstrap-server", bootstrap],
        input=given,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=True,
    )
    return done.stdout


@contextmanager
def running(*words: str) -> Iterator[subprocess.Popen[str]]:
    """`penstock table …`, which is killed at the end if it still runs."""
    with subprocess.Popen(
        [sys.executable, "-m", "penstock", "table", *words],
        env={**os.environ, "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def finished(*words: str) -> tuple[int, str, str]:
    """The exit code and both outputs of a command that ends."""
    with running(*words) as process:
        output, errors = process.communicate(timeout=SECONDS_MAX)
    return process.returncode, output, errors


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_each_topic_has_its_table(kind: str, broker: Broker, tmp_path: Path) -> None:
    shop = Shop(tmp_path, broker, kind)
    for number in range(6):
        shop.send(f"t{number}", range(number * 10, number * 10 + 5))
    code, output, errors = finished("run", str(shop.file), "--once", "--json")
    assert code == 0, errors
    assert json.loads(output)["records"] == 30
    assert {one: shop.held(one) for one in shop.sent} == shop.sent
    code, output, errors = finished("status", str(shop.file), "--json")
    found = {one["topic"]: one for one in json.loads(output)["tables"]}
    assert len(found) == 6
    assert {one["lag"] for one in found.values()} == {0}
    # One topic alone, by every command that is for one table.
    code, output, errors = finished("status", f"{shop.file}:{shop.prefix}.t3", "--json")
    assert json.loads(output)["rows"] == 5
    code, output, errors = finished("check", str(shop.file))
    assert code == 0, errors
    assert output.count("topic ") >= 3


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_new_topics_and_failures_of_single_topics(
    kind: str, broker: Broker, tmp_path: Path
) -> None:
    shop = Shop(tmp_path, broker, kind)
    shop.send("orders", [1, 2])
    shop.send("1bad", [1])
    with running("run", str(shop.file), "--master", "local[2]") as process:
        shop.wait_for_all(["orders"])
        shop.send("items", [7])
        shop.send("orders", [3])
        shop.wait_for_all(["orders", "items"])
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 0, errors
    assert f"{shop.prefix}.1bad failed" in errors
    assert "it ends until the next start" in errors
    assert "Traceback" not in errors
    code, output, errors = finished("run", str(shop.file), "--once")
    assert code == 1, (output, errors)
    assert "1 of the topics failed" in errors


def test_kills_lose_and_double_nothing(broker: Broker, tmp_path: Path) -> None:
    shop = Shop(tmp_path, broker, "delta")
    names = [f"t{number}" for number in range(8)]
    for round_ in range(3):
        for number, name in enumerate(names):
            first = (round_ * len(names) + number) * 100
            shop.send(name, range(first, first + 20))
        with running("run", str(shop.file), "--master", "local[2]") as process:
            assert process.stderr is not None
            for line in process.stderr:
                if "batch" in line:
                    break
            os.killpg(process.pid, signal.SIGKILL)
    code, _, errors = finished("run", str(shop.file), "--once")
    assert code == 0, errors
    assert {one: shop.held(one) for one in names} == {
        one: sorted(ids) for one, ids in shop.sent.items()
    }
