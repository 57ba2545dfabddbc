"""Opens a session of Spark Connect: a client of a Spark driver on another machine.

Guarantees: an unreachable server, a missing package and a refused setting are errors with a remedy,
raised within seconds. A lost server is an error after about a minute of retries; Spark's own client
would retry for ten. Messages show no token and no user of the address. The server's executors are
checked for this version of Penstock before the first batch, because the tasks of a pipeline are
pickled by the names of its modules.

This module does not start a server, and does not stop one: `close` ends the session alone.
"""

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final
from urllib.parse import urlsplit

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.spark.errors import OptionError, SparkQueryError
from penstock.spark.progress.line import reason_of

REMOTE: Final = "SPARK_REMOTE"
"""Set by users of Spark Connect."""
SCHEME: Final = "sc://"
PORT_DEFAULT: Final = 15_002
REACH_SECONDS_MAX: Final = 10.0
"""A server that needs longer for a TCP connection is unreachable."""
RETRIES_MAX: Final = 6
"""Spark's client waits 50 ms before the first retry, and four times as long before each next."""
_SECRET_CHARACTERS_MIN: Final = 4
"""A shorter value would hide parts of other words."""
_MODE: Final = "SPARK_CONNECT_MODE_ENABLED"
"""Set by pyspark with the first session of Spark Connect; it stays for the next session."""
_MISSING: Final = "missing"


class ConnectFailedError(SparkQueryError):
    """A Spark Connect server is unreachable."""


def remote_of(master: str | None, environment: Mapping[str, str]) -> str | None:
    """Return the address of a Connect server; None for a driver in this process."""
    if master is not None and master.startswith(SCHEME):
        return master
    remote = environment.get(REMOTE) or None
    if master is not None and remote is not None:
        raise OptionError(
            "master",
            f"the master is {shown(master)}, and {REMOTE} is {shown(remote)}; a session has one of "
            "them.",
            f"Unset {REMOTE}, or leave the master out.",
        )
    return remote


def open_connect(name: str, remote: str, conf: Mapping[str, str]) -> SparkSession:
    """Return a session of this server; the caller closes it."""
    if not remote.startswith(SCHEME):
        raise OptionError(
            "master",
            f"{REMOTE} is {shown(remote)}, which is not the address of a Spark Connect server.",
            f"Set it to {SCHEME}host:{PORT_DEFAULT}, or unset it.",
        )
    _require_reachable(remote)
    try:
        # Not `getOrCreate`: a session that the process has already may be one of another server.
        spark: SparkSession = SparkSession.builder.appName(name).remote(remote).create()
    except ImportError as error:
        raise OptionError(
            "master",
            f"Spark Connect needs further packages: {reason_of(str(error)).rstrip('.')}.",
            "Install them with: pip install 'pyspark[connect]'",
        ) from error
    try:
        _bound_retries(spark)
        _configure(spark, conf)
        _require_same_version(spark, remote)
    except BaseException:
        close_connect(spark)
        raise
    return spark


def close_connect(spark: SparkSession) -> None:
    """End the session; the server and other sessions go on."""
    with suppress(Exception):  # the server may be gone, and nothing is left to do here
        spark.stop()
    # Otherwise the next session of this process would be one of Spark Connect too.
    os.environ.pop(_MODE, None)


def _require_reachable(remote: str) -> None:
    place = urlsplit(shown(remote))
    try:
        host, port = place.hostname or "", place.port or PORT_DEFAULT
        with socket.create_connection((host, port), REACH_SECONDS_MAX):
            return
    except (OSError, ValueError) as error:
        raise ConnectFailedError(
            f"no Spark Connect server answers at {shown(remote)}: {error}. Start one with "
            "start-connect-server.sh, or correct the address: --master sc://host:15002."
        ) from error


def shown(remote: str) -> str:
    """Return an address without its parameters and its user: a token may be one of them."""
    place = remote.split(";", 1)[0]
    scheme, mark, rest = place.rpartition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}"


def without_secrets(text: str, remote: str) -> str:
    """Return the text of an error without the values of the address's parameters."""
    text = text.replace(remote, shown(remote))
    for parameter in remote.split(";")[1:]:
        value = parameter.partition("=")[2]
        if len(value) >= _SECRET_CHARACTERS_MIN:
            text = text.replace(value, "***")
    return text


def _bound_retries(spark: SparkSession) -> None:
    from pyspark.sql.connect.client.retries import DefaultPolicy

    client: Any = spark.client
    client.set_retry_policies([DefaultPolicy(max_retries=RETRIES_MAX)])


def _configure(spark: SparkSession, conf: Mapping[str, str]) -> None:
    for key, value in {"spark.sql.session.timeZone": "UTC", **conf}.items():
        if key == "spark.master":
            continue
        try:
            spark.conf.set(key, value)
        except PySparkException as error:
            raise OptionError(
                "conf",
                f"{key} cannot be set by a client of Spark Connect: {reason_of(str(error))}.",
                "Set it where the Connect server is started, and remove it here.",
            ) from error


def _require_same_version(spark: SparkSession, remote: str) -> None:
    """Raise if a task does not find this version of Penstock."""

    def found(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Pickled by its code, not by its name: it also runs where Penstock is not installed.
        import importlib.metadata as installed
        import importlib.util as modules

        import pyarrow as arrow

        for _ in batches:
            text = "missing"
            if modules.find_spec("penstock") is not None:
                try:
                    text = installed.version("penstock")
                except installed.PackageNotFoundError:
                    text = ""
            yield arrow.RecordBatch.from_pydict({"version": [text]})

    (row,) = spark.range(0, 1, 1, 1).mapInArrow(found, "version string").collect()
    theirs, own = str(row[0]), _own_version()
    if theirs == own:
        return
    what = "is not installed" if theirs == _MISSING else f"has version {theirs or 'unknown'}"
    raise OptionError(
        "master",
        f"Penstock {what} in the Python of the Connect server {shown(remote)}, and has "
        f"version {own or 'unknown'} here.",
        "Install the same version there, for the server and its executors: "
        "pip install 'penstock[spark]'",
    )


def _own_version() -> str:
    try:
        return version("penstock")
    except PackageNotFoundError:
        return ""
