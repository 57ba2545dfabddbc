"""Spark with the jars of Delta and Iceberg as the owner of tables, in an environment of its own.

    contract_app.py FOLDER < JOB

The job is JSON. Its `catalog` names the SQLite file and the warehouse of Iceberg tables, which are
those of the catalog `default` then. Its `statements` are run in order. The rows of each of its
`queries` are in `FOLDER/<name>.json` afterwards, or the error as a text. Its statement `repeat` is
then run over and over until the file `FOLDER/stop` exists; the result of each run is counted in
`FOLDER/repeated.json`. Imports nothing of ours: the environment has neither Penstock nor the tests.
"""

import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


CATALOG = "default"
"""The catalog's own name for itself: it is in every line of its tables."""


def new_session(folder: Path, catalog: "dict[str, str] | None") -> "SparkSession":
    from pyspark.sql import SparkSession

    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.jars": os.environ["ENGINE_JARS"],
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "spark-warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.extensions": (
            "io.delta.sql.DeltaSparkSessionExtension,"
            "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
        ),
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
    if catalog is not None:
        begin = f"spark.sql.catalog.{CATALOG}"
        settings[begin] = "org.apache.iceberg.spark.SparkCatalog"
        settings[f"{begin}.type"] = "jdbc"
        settings[f"{begin}.uri"] = f"jdbc:sqlite:{catalog['database']}"
        settings[f"{begin}.warehouse"] = catalog["warehouse"]
        settings[f"{begin}.cache-enabled"] = "false"
    builder = SparkSession.builder.master("local[2]").appName("owner")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def repeat(spark: "SparkSession", statement: str, folder: Path) -> None:
    """Until told to stop; a conflict with another writer is what is counted, not an error."""
    counts: Counter[str] = Counter()
    (folder / "ready").touch()
    while not (folder / "stop").exists():
        try:
            metrics = spark.sql(statement).collect()[0]["metrics"]
            counts["done"] += 1
            counts["removed"] += metrics["numFilesRemoved"]
        except Exception as error:  # noqa: BLE001 - Delta's conflicts have many classes
            counts[type(error).__name__] += 1
    (folder / "repeated.json").write_text(json.dumps(counts))


def main() -> None:
    """Do the job of the standard input."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    job: dict[str, Any] = json.load(sys.stdin)
    spark = new_session(folder, job.get("catalog"))
    failed = []
    for statement in job.get("statements", ()):
        try:
            spark.sql(statement)
        except Exception as error:  # noqa: BLE001 - all of them are shown at once
            failed.append(f"{statement}: {str(error)[:500]}")
    if failed:
        raise SystemExit("\n".join(failed))
    for name, query in job.get("queries", {}).items():
        rows: Any
        try:
            rows = [one.asDict() for one in spark.sql(query).collect()]
        except Exception as error:  # noqa: BLE001 - the test of this table shows it
            rows = f"{query}: {str(error)[:2000]}"
        (folder / f"{name}.json").write_text(json.dumps(rows, default=str))
    if "repeat" in job:
        repeat(spark, job["repeat"], folder)
    spark.stop()


if __name__ == "__main__":
    main()
