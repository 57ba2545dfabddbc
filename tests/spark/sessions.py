"""A Spark session for tests and measurements: local, quiet, with the connector's jars.

Guarantees: workers run this very interpreter, whatever `python3` is on the path; everything that
Spark writes lies below the given folder; the session's clock is UTC.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from tests.oracle.spark_jars import connector_jars

QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For tests: the first compiler only, so that a query takes one second instead of two."""


def settings(folder: Path, *, java_options: str = QUICK_JVM) -> dict[str, str]:
    """What every session has."""
    return {
        "spark.jars": ",".join(str(jar) for jar in connector_jars()),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": f"{java_options} -Dderby.system.home={folder / 'derby'}",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        # A query without new data must see it soon, not after Spark's pause.
        "spark.sql.streaming.pollingDelay": "10ms",
    }


def new_session(
    folder: Path,
    *,
    slots: int,
    java_options: str = QUICK_JVM,
    extra: Mapping[str, str] | None = None,
    master: str | None = None,
) -> SparkSession:
    """Start a session with this many task slots, or with another master; the caller stops it."""
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master or f"local[{slots}]").appName("penstock-tests")
    for name, value in {**settings(folder, java_options=java_options), **(extra or {})}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
