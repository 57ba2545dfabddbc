"""Apache Kafka as one process: one node that is broker and controller, no container.

Guarantees: `kafka_broker(folder)` gives a broker that keeps everything below `folder`, listens on
free ports of 127.0.0.1, and is a fresh cluster. Formatting the storage costs a second of Java each
time, so it is done once and the two small files it writes are copied from the cache.
"""

import functools
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.oracle.cache import OracleError, built, content_key, locked, progress
from tests.oracle.kafka_jars import (
    KAFKA_VERSION,
    QUICK_JVM,
    class_data_archive,
    java_command,
    kafka_jars,
    run_kafka_tool,
)
from tests.oracle.running_broker import HOST, Recipe, RunningBroker, free_port

NODE_ID = 1
_CLUSTER_ID = "AoiVrXEJTO24QuSBQbC-Rw"


def _properties(
    data_dir: Path, port: int, controller_port: int, extra: Mapping[str, str]
) -> dict[str, str]:
    return {
        "process.roles": "broker,controller",
        "node.id": str(NODE_ID),
        "controller.quorum.voters": f"{NODE_ID}@{HOST}:{controller_port}",
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(data_dir),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "5",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "5",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "3",
        "group.initial.rebalance.delay.ms": "0",
        **extra,
    }


def _write_properties(path: Path, properties: Mapping[str, str]) -> None:
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))


@functools.cache
def _formatted_storage() -> Path:
    def build(folder: Path) -> None:
        progress("formatting a storage folder for Apache Kafka")
        data_dir = folder / "data"
        settings = folder / "server.properties"
        _write_properties(settings, _properties(data_dir, 1, 2, {}))
        run_kafka_tool("kafka.tools.StorageTool", ["format", "-t", _CLUSTER_ID, "-c", settings])

    key = content_key(_CLUSTER_ID, str(NODE_ID))
    return built(f"kafka-{KAFKA_VERSION}/formatted-{key}", build) / "data"


def kafka_broker(
    folder: Path,
    *,
    properties: Mapping[str, str] | None = None,
    java_options: Sequence[str] = QUICK_JVM,
    log_level: str = "warn",
) -> RunningBroker:
    """A fresh one-node cluster below `folder`, not started yet (`with`, or `start()`)."""
    make_class_data_archive()
    return _broker(folder, properties or {}, java_options, log_level)


def _broker(
    folder: Path, properties: Mapping[str, str], java_options: Sequence[str], log_level: str
) -> RunningBroker:
    folder.mkdir(parents=True, exist_ok=True)
    data_dir = folder / "data"
    if not data_dir.exists():
        shutil.copytree(_formatted_storage(), data_dir)
    port = free_port()
    controller_port = free_port()
    settings = folder / "server.properties"
    _write_properties(settings, _properties(data_dir, port, controller_port, properties))
    command = java_command("kafka.Kafka", [settings], options=java_options, log_level=log_level)
    recipe = Recipe("kafka", command, {}, data_dir)
    return RunningBroker(recipe, folder=folder, port=port)


def make_class_data_archive() -> None:
    """Make the archive for this Java and these jars, if it is not there yet."""
    archive = class_data_archive()
    if archive.exists():
        return
    kafka_jars()
    with locked(archive.name):
        if archive.exists():
            return
        progress("making a class-data archive, so that Apache Kafka starts in about a second")
        unfinished = archive.with_suffix(".unfinished")
        options = (*QUICK_JVM, f"-XX:ArchiveClassesAtExit={unfinished}")
        with tempfile.TemporaryDirectory() as folder, _broker(Path(folder), {}, options, "warn"):
            pass
        if not unfinished.exists():
            raise OracleError("Java wrote no class-data archive")
        unfinished.rename(archive)
