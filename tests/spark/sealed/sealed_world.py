"""A broker on a disk with small segments, and a reader of its topics without Spark's JVM.

The tasks are planned and read with the code that Spark runs; only the transport of tasks to
executors is left out.
"""

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.client.opening import open_cluster
from penstock.core.settings.tree import Settings
from penstock.replication import topic_conversion
from penstock.spark.loss.losses import LossCounter
from penstock.spark.planning import ReadTask
from penstock.spark.source.batch_plan import plan_batch
from penstock.spark.source.lookups import Lookups
from penstock.spark.source.options import Mode, SourceOptions, read_source_options
from penstock.spark.source.task_reader import TaskSettings, read_task
from penstock.storage.log.log_settings import LogSettings
from penstock.testing import Broker

Row = dict[str, Any]


def settings_of(path: Path, **sections: Any) -> Settings:  # noqa: ANN401 - sections of a file
    """Settings of a broker with an admin port."""
    tree: dict[str, Any] = {
        "node": {"data_dir": str(path), "storage": "disk"},
        "admin": {"port": 0},
    }
    if "listeners" not in sections:
        tree["listener"] = {"port": 0}
    for name, values in sections.items():
        tree[name] = values if isinstance(values, tuple) else {**tree.get(name, {}), **values}
    return Settings.model_validate(tree)


@contextmanager
def sealed_broker(path: Path, **sections: Any) -> Iterator[Broker]:  # noqa: ANN401
    """A running broker with segments of a few batches, far below the least of the settings."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topic_conversion, "LogSettings", _small_segments)
        with Broker(settings_of(path, **sections)) as broker:
            yield broker


def _small_segments(**given: Any) -> LogSettings:  # noqa: ANN401 - the fields of the class
    return LogSettings(**{**given, "segment_bytes": 4_096, "index_interval_bytes": 256})


def admin_url(broker: Broker) -> str:
    """The admin port of a broker."""
    return f"http://127.0.0.1:{broker.admin_port}"


def options_of(broker: Broker, topic: str, **given: str) -> SourceOptions:
    """Options of a batch query of one topic, all of it."""
    names = {name.replace("_", "."): text for name, text in given.items()}
    return read_source_options(
        {
            "kafka.bootstrap.servers": broker.bootstrap_server,
            **({} if "assign" in names else {"subscribe": topic}),
            "includeHeaders": "true",
            **names,
        },
        Mode.BATCH,
    )


def plan(options: SourceOptions, bytes_min: int = 0) -> list[ReadTask]:
    """The tasks of a query."""
    losses = LossCounter(fail_on_data_loss=options.fail_on_data_loss)
    with open_cluster(options.client) as cluster:
        return plan_batch(Lookups(cluster, options), options, losses, sealed_bytes_min=bytes_min)


def read(tasks: Sequence[ReadTask], options: SourceOptions) -> list[Row]:
    """The rows of tasks, in the order of each partition."""
    settings = TaskSettings.of(options)
    tables = [
        pa.Table.from_batches(batches)
        for task in tasks
        if (batches := list(read_task(task, settings)))
    ]
    rows = [row for table in tables for row in table.to_pylist()]
    return sorted(rows, key=lambda row: int(row["partition"]))


def ask(
    broker: Broker,
    method: str,
    path: str = "",
    document: object = None,
    user: tuple[str, str] | None = None,
) -> tuple[int, Any]:
    """An answer of the admin port."""
    body = None if document is None else json.dumps(document).encode()
    request = urllib.request.Request(
        f"{admin_url(broker)}/api/v1/leases{path}", body, method=method
    )
    request.add_header("Content-Type", "application/json")
    if user is not None:
        pair = base64.b64encode(":".join(user).encode()).decode()
        request.add_header("Authorization", f"Basic {pair}")
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            data = answer.read()
            return answer.status, json.loads(data) if data else None
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())
