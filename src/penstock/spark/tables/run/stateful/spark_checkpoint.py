"""Reads which batches a checkpoint of Spark has: its id, and the numbers in two folders.

Spark's own file system opens it, with Spark's settings, so it may be anywhere where Spark writes
one. Nothing is written. A file name that is not a number is not a batch.
"""

import json
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from penstock.spark.errors import CheckpointError
from penstock.spark.progress.line import reason_of
from penstock.spark.tables.commit.stateful_rules import NO_BATCH, CheckpointFacts

METADATA_BYTES_MAX: Final = 65_536
"""Spark writes some fifty bytes."""


def read_checkpoint(spark: SparkSession, place: str) -> CheckpointFacts:
    """Return the batches of the checkpoint; raise `CheckpointError` if it cannot be read."""
    try:
        jvm: Any = spark._jvm
        root = jvm.org.apache.hadoop.fs.Path(place)
        system = root.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
        return CheckpointFacts(
            _id(jvm, system, jvm.org.apache.hadoop.fs.Path(root, "metadata"), place),
            _last(system, jvm.org.apache.hadoop.fs.Path(root, "offsets")),
            _last(system, jvm.org.apache.hadoop.fs.Path(root, "commits")),
        )
    except Py4JError as error:
        raise CheckpointError(
            f"the checkpoint {place} cannot be read: {reason_of(str(error)).rstrip('.')}. Correct "
            "pipeline.checkpoint, or its rights."
        ) from error


def _id(jvm: Any, system: Any, file: Any, place: str) -> str | None:  # noqa: ANN401 - Java's
    if not system.exists(file):
        return None
    stream = system.open(file)
    try:
        text = jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
    finally:
        stream.close()
    try:
        found = json.loads(text[:METADATA_BYTES_MAX])["id"]
    except (ValueError, LookupError, TypeError):
        found = None
    if not isinstance(found, str):
        raise CheckpointError(
            f"the checkpoint {place} has no id in its file `metadata`. Restore the checkpoint from "
            "a copy."
        )
    return found


def _last(system: Any, folder: Any) -> int:  # noqa: ANN401 - Java's
    if not system.exists(folder):
        return NO_BATCH
    names = [str(one.getPath().getName()) for one in system.listStatus(folder)]
    return max((int(name) for name in names if name.isdecimal()), default=NO_BATCH)
