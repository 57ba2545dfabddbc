"""Topics as DataFrames: `format("penstock")`, in batch and in Structured Streaming.

This package reaches brokers over the wire only, so it works with Apache Kafka too. The pure modules
(`options`, `starting`, `offsets`, `planning`, `data_loss`) use neither Spark nor Arrow nor sockets;
the readers and writers around them are thin.

PySpark and PyArrow are not among Penstock's dependencies. Without them the import of this package
fails with the names of the packages to install, instead of a failure in the middle of a query.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.spark.progress.listener import ProgressListener

__all__ = ["ProgressListener"]

_missing = [name for name in ("pyspark", "pyarrow") if find_spec(name) is None]
if _missing:
    raise ImportError(
        f"penstock.spark needs {' and '.join(_missing)}, which is not installed here. "
        "Install what works together with: pip install 'penstock[spark]'"
    )


def __getattr__(name: str) -> object:
    # Import it on first use: workers of a query import this package and need no listener.
    if name == "ProgressListener":
        from penstock.spark.progress.listener import ProgressListener

        return ProgressListener
    raise AttributeError(f"module 'penstock.spark' has no attribute {name!r}")
