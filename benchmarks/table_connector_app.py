"""Spark's own Kafka connector into Parquet files, Delta and Iceberg: a worker of the comparison.

    python -m benchmarks.table_connector_app FOLDER JARS [SETTINGS AS JSON]

It runs on PySpark 4.1 (all three sinks, and Avro) and 4.2 (no Iceberg, no Avro: no jar of that
version is published), in an environment without Penstock. It uses the fastest settings. The table
is created before the clock starts; its rows are counted after the clock has stopped.

Protobuf is not parsed, because no jar for it is published for any of these versions: the bytes are
written as they are, which is less work than any parser has.
"""

import json
import os
import shutil
import sys
import time
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from benchmarks.table_events import COLUMNS, METADATA
from benchmarks.table_kinds import AVRO_SCHEMA, FRAME_BYTES, KINDS
from benchmarks.table_workers import Answer, Request, serve

SLOTS = 2
RUN_SECONDS_MAX = 900
SINKS = ("parquet", "delta", "iceberg")
BATCH = "batch"
"""The way of a request that is one Spark job; otherwise it is a query with AvailableNow."""
EXTENSIONS = {
    "delta-spark": "io.delta.sql.DeltaSparkSessionExtension",
    "iceberg-spark": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
}
SOURCE_OPTIONS = {"kafka.max.poll.records": "10000"}
WITHOUT_CHECKSUMS = {
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
}
"""Penstock's sessions write none of Hadoop's checksum files either."""
DELTA_SETTINGS = {"spark.databricks.delta.snapshotPartitions": str(SLOTS)}
"""Delta reads the table's log in 50 tasks by default, which suits a cluster. Its own summary of
each version (`*.crc` in `_delta_log`) stays on: it spares the next commit a look at the log."""
ICEBERG_PROPERTIES = {
    "write.distribution-mode": "none",
    "write.parquet.compression-codec": "snappy",
}


def new_session(folder: Path, jars: str, more: dict[str, str]) -> SparkSession:
    """Return a session with the extensions and catalogs of the jars."""
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.jars": jars,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "4g",
        "spark.driver.extraJavaOptions": f"-XX:+UseG1GC -Dderby.system.home={folder / 'derby'}",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(SLOTS),
        "spark.sql.streaming.pollingDelay": "10ms",
        "spark.sql.extensions": ",".join(name for jar, name in EXTENSIONS.items() if jar in jars),
        **WITHOUT_CHECKSUMS,
        **DELTA_SETTINGS,
    }
    if "delta-spark" in jars:
        settings["spark.sql.catalog.spark_catalog"] = (
            "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        )
    if "iceberg-spark" in jars:
        settings["spark.sql.catalog.ice"] = "org.apache.iceberg.spark.SparkCatalog"
        settings["spark.sql.catalog.ice.type"] = "hadoop"
        settings["spark.sql.catalog.ice.warehouse"] = str(folder / "ice")
    builder = SparkSession.builder.master(f"local[{SLOTS}]").appName("connector")
    for name, value in {**settings, **more}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def parsed(kind: str) -> Column:
    """Return the columns of the value as a struct."""
    value = f.col("value")
    if kind == "avro":
        from pyspark.sql.avro.functions import from_avro

        return from_avro(f.substring(value, FRAME_BYTES + 1, 1 << 30), AVRO_SCHEMA)
    return f.from_json(value.cast("string"), KINDS[kind].schema)


class Connector:
    """The session, and at most one query that runs until it is stopped."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._query: StreamingQuery | None = None
        self._last: tuple[Request, Path, str] | None = None
        """The last run, whose rows can be counted."""

    def _rows(self, request: Request) -> DataFrame:
        """The topic, parsed, with the same columns as a table of Penstock."""
        options = {
            "kafka.bootstrap.servers": request["bootstrap"],
            "subscribe": request["topic"],
            "startingOffsets": "earliest",
            "includeHeaders": "true",
            **SOURCE_OPTIONS,
            **request.get("source_options", {}),
        }
        is_batch = request.get("way") == BATCH
        reader = self._spark.read if is_batch else self._spark.readStream
        read = reader.format("kafka").options(**options).load()
        kind = request.get("kind", "json")
        record = f.struct(*METADATA).alias("_kafka")
        if kind == "protobuf":
            return read.select(record, "value")
        return read.select(record, parsed(kind).alias("event")).select("_kafka", "event.*")

    def _new_iceberg_table(self, request: Request, place: Path, rows: DataFrame) -> str:
        """Create an empty table; return its name."""
        name = f"ice.bench.{place.name}"
        columns = ", ".join(
            f"{field.name} {field.dataType.simpleString()}" for field in rows.schema
        )
        properties = {**ICEBERG_PROPERTIES, **request.get("table_properties", {})}
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
        self._spark.sql(f"drop table if exists {name}")
        self._spark.sql(f"create table {name} ({columns}) using iceberg tblproperties ({listed})")
        return name

    def _writer(self, request: Request, place: Path) -> tuple[DataStreamWriter, str]:
        """Return the writer to an empty table, and the table's path."""
        rows = self._rows(request)
        sink = request["sink"]
        writer = rows.writeStream.option("checkpointLocation", str(place / "checkpoint"))
        if sink == "iceberg":
            name = self._new_iceberg_table(request, place, rows)
            writer = writer.format("iceberg").option("fanout-enabled", "true")
            return writer.option("path", name), str(self._folder / "ice" / "bench" / place.name)
        path = str(place / "rows")
        writer = writer.format(sink).option("path", path)
        return writer.options(**request.get("sink_options", {})), path

    def run(self, request: Request) -> Answer:
        """Write the whole topic, once."""
        place = self._new_folder(request)
        if request.get("way") == BATCH:
            return self._run_batch(request, place)
        writer, path = self._writer(request, place)
        begun = time.perf_counter()
        query = writer.trigger(availableNow=True).start()
        if not query.awaitTermination(RUN_SECONDS_MAX):
            raise TimeoutError(f"the query ran over {RUN_SECONDS_MAX} s: {query.status}")
        seconds = time.perf_counter() - begun
        self._last = request, place, path
        return {"seconds": seconds}

    def _run_batch(self, request: Request, place: Path) -> Answer:
        """Write the whole topic by one Spark job."""
        rows = self._rows(request)
        if request["sink"] == "iceberg":
            name = self._new_iceberg_table(request, place, rows)
            path = str(self._folder / "ice" / "bench" / place.name)
            begun = time.perf_counter()
            rows.writeTo(name).option("fanout-enabled", "true").append()
        else:
            path = str(place / "rows")
            writer = rows.write.format(request["sink"]).options(**request.get("sink_options", {}))
            begun = time.perf_counter()
            writer.save(path)
        seconds = time.perf_counter() - begun
        self._last = request, place, path
        return {"seconds": seconds}

    def count(self, _request: Request) -> Answer:
        """Count the rows, files and bytes of the last run, and the rows that were parsed."""
        assert self._last is not None, "nothing has run"
        request, place, path = self._last
        if request["sink"] == "iceberg":
            found = self._spark.table(f"ice.bench.{place.name}")
        else:
            found = self._spark.read.format(request["sink"]).load(path)
        counted = "value" if request.get("kind") == "protobuf" else COLUMNS[0]
        rows, good = found.agg(f.count("_kafka.offset"), f.count(counted)).collect()[0]
        files = [one for one in Path(path).rglob("*.parquet") if "_delta_log" not in one.parts]
        size = sum(one.stat().st_size for one in files)
        return {"rows": rows, "parsed": good, "files": len(files), "file_bytes": size}

    def start(self, request: Request) -> Answer:
        """Start a query that runs until `stop`."""
        place = self._new_folder(request)
        writer, path = self._writer(request, place)
        if request.get("trigger_ms") is not None:
            writer = writer.trigger(processingTime=f"{request['trigger_ms']} milliseconds")
        self._query = writer.start()
        return {"path": path}

    def stop(self, _request: Request) -> Answer:
        """Stop the running query; raise its error if it failed."""
        assert self._query is not None, "no query runs"
        query, self._query = self._query, None
        failure = query.exception()
        query.stop()
        if failure is not None:
            raise failure
        return {}

    def _new_folder(self, request: Request) -> Path:
        place = self._folder / "queries" / str(request["name"])
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        return place


def main() -> None:
    """Answer requests."""
    folder = Path(sys.argv[1])
    more = json.loads(sys.argv[3]) if len(sys.argv) > 3 else {}
    spark = new_session(folder, sys.argv[2], more)
    spark.sparkContext.setLogLevel("OFF")
    connector = Connector(spark, folder)
    try:
        serve(
            {
                "run": connector.run,
                "count": connector.count,
                "start": connector.start,
                "stop": connector.stop,
            }
        )
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
