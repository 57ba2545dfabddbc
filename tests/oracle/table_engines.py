"""A Python environment with other engines that read and write tables: Spark 4.1 and DuckDB 1.5.

Guarantees: `engine_python()` is a Python that has PySpark 4.1.3 (the last one with jars for Kafka,
Delta and Iceberg at once) and DuckDB 1.5.5 with its own extensions `delta`, `iceberg` and `avro`.
It is in the user's cache folder, created at its first use (0.8 GB, two minutes).

DuckDB fetches its extensions from extensions.duckdb.org, which a test machine may not reach. The
same binaries are on PyPI, packed by a third party: DuckDB loads one only when it carries DuckDB's
own signature, and no other code of those packages is run. They exist for 1.5.5 and not yet for 2.0.

It is NOT an environment for our tests: Penstock and pytest are not in it. Scripts that run there
import only these engines.
"""

import sys
from pathlib import Path

from tests.oracle.cache import built, content_key, progress, run

SPARK_VERSION = "4.1.3"
DUCKDB_VERSION = "1.5.5"
EXTENSIONS = ("avro", "delta", "iceberg")
WHEELS = (
    f"pyspark=={SPARK_VERSION}",
    "pyarrow>=18",
    "pandas>=2.2,<3",
    f"duckdb=={DUCKDB_VERSION}",
    *(f"duckdb-extension-{name}=={DUCKDB_VERSION}" for name in EXTENSIONS),
)


def engine_python() -> str:
    """The Python program of that environment, made if it is not there yet."""

    def build(folder: Path) -> None:
        progress(f"making an environment with PySpark {SPARK_VERSION} and DuckDB {DUCKDB_VERSION}")
        run([sys.executable, "-m", "venv", folder])
        python = folder / "bin" / "python"
        run([python, "-m", "pip", "install", "--quiet", *WHEELS])

    key = content_key(sys.version, *WHEELS)
    return str(built(f"spark/engines-{SPARK_VERSION}-{key}", build) / "bin" / "python")
