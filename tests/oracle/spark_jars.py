"""The jars of Spark's own Kafka connector, by Maven, for comparison. Penstock itself needs none.

Guarantees: `connector_jars()` names exactly the jars that `format("kafka")` needs beside those of
a PySpark wheel. They are fetched one by one and not with what they depend on: the connector asks
for a token provider of its own version, and no later one than that of 4.1.0-preview1 is published.
The jars of 4.2.0 serve Spark 4.2 and 4.3.
"""

import functools
from pathlib import Path

from tests.oracle.cache import OracleError, built, content_key, progress, run, tool

CONNECTOR_VERSION = "4.2.0"
COORDINATES = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{CONNECTOR_VERSION}",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.1.0-preview1",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)


@functools.cache
def connector_jars() -> tuple[Path, ...]:
    """The connector's jars, downloaded at the first use (10 MB)."""

    def build(folder: Path) -> None:
        maven = tool("mvn", "install Maven (Debian: maven)")
        for coordinate in COORDINATES:
            progress(f"downloading {coordinate} by Maven")
            goal = ["dependency:copy", f"-Dartifact={coordinate}", f"-DoutputDirectory={folder}"]
            run([maven, "-q", "-B", *goal])
        found = sorted(jar.name for jar in folder.glob("*.jar"))
        if len(found) != len(COORDINATES):
            raise OracleError(f"Maven ended without an error, yet there are only {found}")

    folder = built(f"spark-connector-{CONNECTOR_VERSION}-{content_key(*COORDINATES)}", build)
    return tuple(sorted(folder.glob("*.jar")))
