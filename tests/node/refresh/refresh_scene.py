"""A parent, snapshots of its topic, and a child that installs them, in this process."""

import time
from pathlib import Path
from typing import Final

import httpx

from penstock.client.transport.addresses import parse_addresses
from penstock.client.transport.options import ClientOptions
from penstock.core.clock import SystemClock
from penstock.edge.refresh.manifest import Manifest
from penstock.spark.refresh.partition_build import run_task
from penstock.spark.refresh.snapshot_build import BuildOptions, build_with
from penstock.testing import Broker
from tests.node.pipes.pipe_scene import TOPIC

SECONDS_MAX: Final = 20.0


def build(
    broker: str, place: Path | str, topic: str = TOPIC, compression: str = "zstd"
) -> Manifest:
    """Build a snapshot as the Spark job does, with its tasks in this process."""
    client = ClientOptions(tuple(parse_addresses(broker)))
    options = BuildOptions(client, topic, str(place), compression)
    return build_with(options, lambda tasks: [run_task(one) for one in tasks], SystemClock())


def write(broker: Broker, values: dict[str, str | None], partition: int | None = None) -> None:
    """Write records with keys; None is a tombstone."""
    for key, value in values.items():
        broker.produce(TOPIC, value, key=key, partition=partition)


def install(child: Broker, place: Path | str, *, is_forced: bool = False) -> dict[str, object]:
    """Install a snapshot over the admin port; return the last state."""
    url = f"http://127.0.0.1:{child.admin_port}/api/v1/refreshes/{TOPIC}"
    body = {"place": str(place), "is_forced": is_forced}
    answer = httpx.post(url, json=body, timeout=10)
    assert answer.is_success, answer.text
    deadline = time.monotonic() + SECONDS_MAX
    while (state := httpx.get(url, timeout=10).json())["state"] == "RUNNING":
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert isinstance(state, dict)
    return state


def state_of(broker: Broker, partition: int = 0) -> dict[str, tuple[int, str]]:
    """Return offset and value of each key, as a consumer of the whole partition finds them."""
    found: dict[str, tuple[int, str]] = {}
    for record in broker.records(TOPIC, partitions=[partition]):
        assert record.key is not None
        if record.value is None:
            found.pop(record.key, None)
        else:
            found[record.key] = (record.offset, record.value)
    return found
