"""The Spark guide cannot go stale: its tables are compared with the code, its programs run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.records.compression import CODEC_NAMES
from penstock.spark.kafka_settings import TO_CLIENT
from penstock.spark.loss.data_loss import LossKind
from penstock.spark.sink import options as sink_options
from penstock.spark.sink import producer_settings
from penstock.spark.source.consumer_settings import USED
from penstock.spark.source.options import KNOWN, Mode, SourceOptions, read_source_options
from tests.docs.test_guides import ADDRESS, BLOCK, commands, run
from tests.oracle.penstock_broker import penstock_broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "guides" / "spark.md").read_text()
MIB = 1_048_576


def section(title: str) -> str:
    return GUIDE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def rows(title: str) -> list[list[str]]:
    """The cells of the table in a section, without its heading."""
    lines = [line for line in section(title).splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def options_of(title: str) -> dict[str, str]:
    """Each option of a table, with its default."""
    found = {}
    for name, default, *_ in rows(title):
        assert name.strip("`") not in found
        found[name.strip("`")] = default.strip("`")
    return found


def test_every_option_for_reading_is_in_the_guide_and_no_other() -> None:
    kafka = {f"kafka.{name}" for name in TO_CLIENT | USED}
    assert set(options_of("Options for reading")) == set(KNOWN) | kafka


def reading_defaults(batch: SourceOptions, stream: SourceOptions) -> Mapping[str, object]:
    edges = {-1: "latest", -2: "earliest", None: "none"}
    return {
        "startingOffsets": f"{edges[batch.start.edge]}` in a batch, "
        f"`{edges[stream.start.edge]}` in a stream",
        "endingOffsets": edges[batch.end.edge],
        "startingOffsetsByTimestampStrategy": "latest" if batch.may_start_at_latest else "error",
        "maxOffsetsPerTrigger": stream.limits.offsets_max or "",
        "minOffsetsPerTrigger": stream.limits.offsets_min or "",
        "maxTriggerDelay": f"{stream.limits.delay_ms_max // 60_000}m",
        "maxBytesPerTrigger": stream.limits.bytes_max or "",
        "minPartitions": stream.splitting.partitions_min or "",
        "maxRecordsPerPartition": stream.splitting.records_max or "",
        "maxBytesPerPartition": f"{stream.splitting.bytes_max // MIB}m",
        "failOnDataLoss": str(stream.fail_on_data_loss).lower(),
        "includeHeaders": str(stream.include_headers).lower(),
        "groupIdPrefix": stream.group_prefix or "",
        "kafka.group.id": stream.group_id or "",
        "kafka.isolation.level": (
            "read_committed" if stream.is_read_committed else "read_uncommitted"
        ),
        "kafka.max.partition.fetch.bytes": f"{stream.fetch.partition_bytes_max // MIB}m",
        "kafka.client.id": stream.client.client_id,
        "kafka.request.timeout.ms": stream.client.request_timeout_ms,
        "kafka.default.api.timeout.ms": stream.client.retry_timeout_ms,
        "kafkaConsumer.pollTimeoutMs": stream.task_client.retry_timeout_ms,
        "fetchOffset.numRetries": stream.lookups.attempts,
        "fetchOffset.retryIntervalMs": stream.lookups.pause_ms,
        "partition.metadata.cache.ttl.ms": stream.lookups.topics_ttl_ms,
        "segments": stream.sealed.use.value,
    }


def test_defaults_for_reading() -> None:
    given = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}
    batch, stream = (read_source_options(given, mode) for mode in (Mode.BATCH, Mode.STREAM))
    told = options_of("Options for reading")
    expected = reading_defaults(batch, stream)
    assert {name: told[name] for name in expected} == {
        name: str(value) for name, value in expected.items()
    }
    assert {name for name in told if told[name]} <= set(expected)


def test_every_option_for_writing_is_in_the_guide_and_no_other() -> None:
    kafka = {f"kafka.{name}" for name in TO_CLIENT | producer_settings.USED}
    assert set(options_of("Options for writing")) == set(sink_options.KNOWN) | kafka


def test_defaults_for_writing() -> None:
    given = {"kafka.bootstrap.servers": "localhost:9092"}
    batch = sink_options.read_sink_options(given, is_stream=False)
    stream = sink_options.read_sink_options(given, is_stream=True)
    acks = {number: name for name, number in reversed(list(sink_options.ACKS.items()))}
    told = options_of("Options for writing")
    expected: dict[str, object] = {
        "deliveryGuarantee": f"{batch.guarantee.value}` in a batch, "
        f"`{stream.guarantee.value}` in a stream",
        "kafka.transaction.timeout.ms": stream.transaction_timeout_ms,
        "decisionTopic": stream.decision_topic,
        "transactionalIdPrefix": stream.id_prefix,
        "failOnReplayDifference": str(stream.fails_on_difference).lower(),
        "kafka.acks": acks[stream.acks],
        "kafka.enable.idempotence": str(stream.is_idempotent).lower(),
        "kafka.compression.type": CODEC_NAMES[stream.codec],
        "kafka.batch.size": stream.batch_bytes_max,
        "kafka.delivery.timeout.ms": stream.client.retry_timeout_ms,
        "kafka.request.timeout.ms": stream.client.request_timeout_ms,
        "kafka.client.id": stream.client.client_id,
    }
    assert {name: default for name, default in told.items() if default} == {
        name: str(value) for name, value in expected.items()
    }


def test_every_kind_of_loss_is_in_the_guide() -> None:
    assert len(rows("When data is gone")) == len(LossKind)


def test_every_example_is_in_the_guide() -> None:
    folder = Path(__file__).resolve().parents[2] / "examples" / "spark"
    assert set(re.findall(r"\[(\w+\.py)\]", section("Examples"))) == {
        path.name for path in folder.glob("*.py")
    }


def same_form(line: str) -> str:
    """A line of the listener without what cannot be the same: speed and duration."""
    return re.sub(r"[\d,.]+ (rows/s|ms|s)\b", r"N \1", line).replace("N s ", "N ms ")


@pytest.mark.spark
def test_the_stream_of_the_readme(spark: SparkSession) -> None:
    readme = (Path(__file__).resolve().parents[2] / "README.md").read_text()
    (block,) = [block for _, block in BLOCK.findall(readme) if 'format("penstock")' in block]
    names: dict[str, Any] = {"spark": spark}
    exec(block, names)
    assert names["orders"].isStreaming
    assert names["orders"].columns[:2] == ["key", "value"]


@pytest.mark.spark
def test_the_guide_runs_as_it_is_printed(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = ""
    names: dict[str, object] = {}
    with penstock_broker(tmp_path / "broker") as broker:
        for language, block in BLOCK.findall(GUIDE):
            if language == "python":
                exec(block.replace(ADDRESS, broker.bootstrap), names)
                shown += capsys.readouterr().err
                continue
            for command, printed in commands(block):
                if not command.startswith("penstock serve"):
                    assert run(command, broker.bootstrap, tmp_path) == printed, command
        spark.streams.removeListener(names["listener"])  # type: ignore[arg-type]
    (lines,) = re.findall(r"```text\n(orders-to-parquet.*?)```", GUIDE, re.DOTALL)
    assert set(map(same_form, lines.splitlines())) <= set(map(same_form, shown.splitlines()))
