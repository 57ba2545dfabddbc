"""The source on the driver over a cluster in memory: no records, no Spark, no sockets.

Everything that the source asks goes through the real client.
"""

from penstock.spark.lookups import Lookups
from penstock.spark.micro_batches import MicroBatches
from penstock.spark.options import Mode, SourceOptions, read_source_options
from tests.client.number_cluster import NumberCluster


def source_options(mode: Mode = Mode.STREAM, /, **given: str) -> SourceOptions:
    """Options of a query that reads `orders`, unless they say what else."""
    what = {"subscribe", "subscribePattern", "assign"}
    default = {} if what & given.keys() else {"subscribe": "orders"}
    return read_source_options({"kafka.bootstrap.servers": "fake:9000", **default, **given}, mode)


def lookups_of(cluster: NumberCluster, options: SourceOptions) -> Lookups:
    """What a driver asks of this cluster."""
    return Lookups(cluster.client(), options, cluster.clock.sleep)


def stream_of(cluster: NumberCluster, **given: str) -> MicroBatches:
    """A run of a stream over this cluster; it starts at the earliest if nothing else is said."""
    given = {"startingOffsets": "earliest", **given} if "startingTimestamp" not in given else given
    options = source_options(Mode.STREAM, **given)
    return MicroBatches(lookups_of(cluster, options), options, cluster.clock)
