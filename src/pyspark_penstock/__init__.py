"""What Spark looks for: packages named `pyspark_*` with a `DefaultSource` are registered by Spark.

So `format("penstock")` works as soon as Penstock is installed, without a line of registration.
Spark imports this in a process of its own at the first use of any Python source, so it imports
nothing but the class that names the format.
"""

from penstock.spark.data_source import PenstockDataSource as DefaultSource

__all__ = ["DefaultSource"]
