"""Jars for Spark by Maven, for comparison: Kafka, Delta and Iceberg. Penstock itself needs none.

Guarantees: each function names exactly the jars that a connector needs beside those of a PySpark
wheel. They are fetched one by one and without their dependencies: the Kafka connector requires a
token provider of its own version, and no later one than that of 4.1.0-preview1 is published. The
Kafka jars of 4.2.0 serve Spark 4.2 and 4.3. There is no Iceberg runtime for 4.2.
"""

import functools
from collections.abc import Sequence
from pathlib import Path

from tests.oracle.cache import OracleError, built, content_key, progress, run, tool

CONNECTOR_VERSION = "4.2.0"
_TOKEN_PROVIDER = "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.1.0-preview1"
COORDINATES = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{CONNECTOR_VERSION}",
    _TOKEN_PROVIDER,
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)
OLD_COORDINATES = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.3",
    _TOKEN_PROVIDER,
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)
"""The same for Spark 4.1, the last one that has an Iceberg runtime."""
DELTA_VERSION = "4.4.0"
DELTA_PARTS = (
    "delta-storage",
    "delta-kernel-api",
    "delta-kernel-defaults",
    "delta-kernel-unitycatalog",
)
AVRO = "org.apache.spark:spark-avro_2.13:4.1.1"
"""Of later versions, and for Protobuf, no jar is published in the repository that tests reach."""
ICEBERG = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
ICEBERG_S3 = "org.apache.iceberg:iceberg-aws-bundle:1.12.0"
SQLITE = "org.xerial:sqlite-jdbc:3.50.3.0"
"""With it Spark opens the same SQL catalog that pyiceberg wrote."""


def _fetched(name: str, coordinates: Sequence[str]) -> tuple[Path, ...]:
    def build(folder: Path) -> None:
        maven = tool("mvn", "install Maven (Debian: maven)")
        for coordinate in coordinates:
            progress(f"downloading {coordinate} by Maven")
            goal = ["dependency:copy", f"-Dartifact={coordinate}", f"-DoutputDirectory={folder}"]
            run([maven, "-q", "-B", *goal])
        found = sorted(jar.name for jar in folder.glob("*.jar"))
        if len(found) != len(coordinates):
            raise OracleError(f"Maven ended without an error, yet there are only {found}")

    folder = built(f"{name}-{content_key(*coordinates)}", build)
    return tuple(sorted(folder.glob("*.jar")))


@functools.cache
def connector_jars() -> tuple[Path, ...]:
    """The Kafka connector's jars, downloaded at the first use (10 MB)."""
    return _fetched(f"spark-connector-{CONNECTOR_VERSION}", COORDINATES)


@functools.cache
def old_connector_jars() -> tuple[Path, ...]:
    """The Kafka connector's jars for Spark 4.1 (10 MB)."""
    return _fetched("spark-connector-4.1.3", OLD_COORDINATES)


@functools.cache
def delta_jars(spark: str) -> tuple[Path, ...]:
    """Delta's jars for a version of Spark like `4.1` (12 MB)."""
    first = f"io.delta:delta-spark_{spark}_2.13:{DELTA_VERSION}"
    others = [f"io.delta:{part}:{DELTA_VERSION}" for part in DELTA_PARTS]
    return _fetched(f"spark-delta-{spark}", (first, *others))


@functools.cache
def avro_jars() -> tuple[Path, ...]:
    """`from_avro` for Spark 4.1 (0.2 MB)."""
    return _fetched("spark-avro-4.1", (AVRO,))


@functools.cache
def iceberg_jars() -> tuple[Path, ...]:
    """Iceberg's runtime for Spark 4.1, and a driver for SQL catalogs in SQLite (60 MB)."""
    return _fetched("spark-iceberg-4.1", (ICEBERG, SQLITE))


@functools.cache
def iceberg_s3_jars() -> tuple[Path, ...]:
    """Iceberg's runtime for Spark 4.1, and what reads S3 with it (110 MB)."""
    return _fetched("spark-iceberg-s3-4.1", (ICEBERG, ICEBERG_S3))
