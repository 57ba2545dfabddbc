"""The Spark session of a command: the one that the environment names, or one of this machine.

Guarantees: what a person gives (`--master`, `--conf`) wins over the environment (`SPARK_REMOTE`,
`spark-submit`), and that over this machine with all its cores. A local session listens on the
loopback only, has no web page unless it is asked for, and its workers run this very interpreter. It
says nothing that is not an error: the command has words of its own.
"""

import os
import sys
from collections.abc import Mapping
from typing import Final

from pyspark.sql import SparkSession

LOCAL: Final = "local[*]"
_QUIET: Final[Mapping[str, str]] = {
    "spark.log.level": "ERROR",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
}
_LOOPBACK: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
_ELSEWHERE: Final = ("SPARK_REMOTE", "PYSPARK_GATEWAY_PORT")
"""Set by who has chosen a session already: Spark Connect, and spark-submit."""


def open_session(name: str, *, master: str | None, conf: Mapping[str, str]) -> SparkSession:
    """The session; whoever opens it stops it."""
    chosen = master or conf.get("spark.master") or _local_master()
    builder = SparkSession.builder.appName(name)
    given = dict(_QUIET)
    if chosen is not None:
        builder = builder.master(chosen)
        if chosen.startswith("local"):
            given |= _LOOPBACK
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for key, value in {**given, **conf}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _local_master() -> str | None:
    return None if any(name in os.environ for name in _ELSEWHERE) else LOCAL
