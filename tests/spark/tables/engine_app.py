"""Reads tables with another engine, in its own environment: `engine_app.py FOLDER ENGINE < JOBS`.

For each job of the JSON list on the standard input the rows lie in `FOLDER/<name>.arrow` when this
ends without an error: all of a table, or those of a condition (`where`). The engine finds the
files, columns and partitions by itself, from the table's own metadata. Imports nothing of ours: the
environment has neither Penstock nor the tests.
"""

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

Jobs = list[dict[str, Any]]
CATALOG = "default"
"""The catalog's own name for itself: it is in every line of its tables."""


def save(folder: Path, name: str, rows: pa.Table) -> None:
    """As an Arrow file."""
    place = str(folder / f"{name}.arrow")
    with pa.OSFile(place, "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)


def by_duckdb(jobs: Jobs, folder: Path) -> None:
    """With DuckDB's own extensions, from packages whose signature DuckDB checks."""
    import duckdb

    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        for name in ("avro", "iceberg", "delta"):
            package = importlib.util.find_spec(f"duckdb_extension_{name}")
            assert package is not None, f"the extension {name} is not installed"
            assert package.origin is not None
            place = Path(package.origin).parent / "extensions" / f"v{duckdb.__version__}"
            connection.execute(f"load '{place / name}.duckdb_extension'")
        for job in jobs:
            found = connection.execute(
                f"select * from {job['format']}_scan(?) where {job.get('where', 'true')}",
                [job["location"]],
            )
            save(folder, job["name"], found.to_arrow_table())


def by_spark(jobs: Jobs, folder: Path) -> None:
    """With the Delta and Iceberg jars; Iceberg's tables by the SQL catalog they were made in."""
    from pyspark.sql import SparkSession

    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    has_delta = "delta" in os.environ.get("ENGINE_FORMATS", "delta,iceberg")
    extensions = (
        "io.delta.sql.DeltaSparkSessionExtension",
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    )
    settings = {
        "spark.jars": os.environ["ENGINE_JARS"],
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "spark-warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "2",  # fifty tasks for each question otherwise
        "spark.sql.extensions": ",".join(extensions[0 if has_delta else 1 :]),
    }
    if has_delta:
        delta = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        settings["spark.sql.catalog.spark_catalog"] = delta
    builder = SparkSession.builder.master("local[2]").appName("engine")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    for job in jobs:
        if job["format"] == "delta":
            frame = spark.read.format("delta").load(job["location"])
        else:
            # Each table has a database of its own, and a session knows one catalog by this name.
            session = spark.newSession()
            begin = f"spark.sql.catalog.{CATALOG}"
            session.conf.set(begin, "org.apache.iceberg.spark.SparkCatalog")
            session.conf.set(f"{begin}.type", "jdbc")
            session.conf.set(f"{begin}.uri", f"jdbc:sqlite:{job['database']}")
            session.conf.set(f"{begin}.warehouse", job["warehouse"])
            frame = session.sql(f"SELECT * FROM `{CATALOG}`.{job['table']}")
        save(folder, job["name"], frame.where(job.get("where", "true")).toArrow())
    spark.stop()


def main() -> None:
    """Read every table of the jobs."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    {"duckdb": by_duckdb, "spark": by_spark}[sys.argv[2]](json.load(sys.stdin), folder)


if __name__ == "__main__":
    main()
