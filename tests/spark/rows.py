"""Rows of topics through either connector, in batch and in streams, in an order that compares.

Guarantees: rows are returned by topic, partition and offset, with every column of the source. A
stream is written to Parquet files, so that it can stop and continue from its checkpoint as a user's
does.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

STREAM_SECONDS_MAX = 120

PLACE = ("topic", "partition", "offset")

Row = dict[str, Any]


@dataclass(frozen=True)
class Source:
    """A connector, an address, and options: everything but batch or stream."""

    format: str
    bootstrap: str
    options: Mapping[str, str]

    def all_options(self) -> dict[str, str]:
        """With the address, and headers unless they are declined."""
        given = {"kafka.bootstrap.servers": self.bootstrap, "includeHeaders": "true"}
        return {**given, **self.options}


def batch_frame(spark: SparkSession, source: Source) -> DataFrame:
    """The DataFrame of a batch query."""
    return spark.read.format(source.format).options(**source.all_options()).load()


def stream_frame(spark: SparkSession, source: Source) -> DataFrame:
    """The DataFrame of a stream."""
    return spark.readStream.format(source.format).options(**source.all_options()).load()


def collected(frame: DataFrame) -> list[Row]:
    """Every row, in order of place."""
    rows = [_plain(row.asDict(recursive=True)) for row in frame.collect()]
    return sorted(rows, key=lambda row: tuple(row[name] for name in PLACE))


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever a row holds
    """Bytes instead of byte arrays: they print and compare well."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return bytes(value) if isinstance(value, bytearray) else value


def batch_rows(spark: SparkSession, source: Source) -> list[Row]:
    """What a batch query returns."""
    return collected(batch_frame(spark, source))


@dataclass(frozen=True)
class StreamFolder:
    """Where a stream keeps its checkpoint and its output."""

    path: Path

    @property
    def checkpoint(self) -> str:
        """Where Spark keeps what the stream has done."""
        return str(self.path / "checkpoint")

    @property
    def output(self) -> str:
        """Where the rows are."""
        return str(self.path / "rows")


def run_available(spark: SparkSession, source: Source, folder: StreamFolder) -> list[Row]:
    """Run a stream over what is there, from its checkpoint on; what each micro-batch did."""
    query = (
        stream_frame(spark, source)
        .writeStream.format("parquet")
        .option("path", folder.output)
        .option("checkpointLocation", folder.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    try:
        is_done = query.awaitTermination(STREAM_SECONDS_MAX)
        assert is_done, f"the stream did not end in {STREAM_SECONDS_MAX} s: {query.status}"
        return [dict(progress) for progress in query.recentProgress]
    finally:
        query.stop()


def streamed_rows(spark: SparkSession, folder: StreamFolder) -> list[Row]:
    """What a stream has written so far."""
    return collected(spark.read.parquet(folder.output))


def places(rows: list[Row]) -> list[tuple[int, int]]:
    """Partition and offset of each row: what a test of one topic looks at."""
    return [(row["partition"], row["offset"]) for row in rows]


def values(rows: list[Row]) -> list[bytes]:
    """The value of each row."""
    return [row["value"] for row in rows]
