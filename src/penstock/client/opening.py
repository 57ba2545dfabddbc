"""`open_cluster`: a cluster from options, over blocking connections.

It is for jobs: the first contact is retried like every other call, because a job outlives the
restart of a broker. The command line reports the error immediately, and opens its own cluster.
"""

from penstock.client.cluster import Cluster
from penstock.client.transport.addresses import Address
from penstock.client.transport.blocking import BlockingConnection, connect
from penstock.client.transport.options import ClientOptions


def open_cluster(options: ClientOptions, *, repeats_first_contact: bool = True) -> Cluster:
    """Return the cluster of these options; the first request opens a connection."""
    request_timeout_seconds = options.request_timeout_ms / 1000

    def open_connection(address: Address) -> BlockingConnection:
        return connect(
            address,
            timeout_seconds=request_timeout_seconds,
            client_id=options.client_id,
            security=options.security,
        )

    return Cluster(
        options.bootstrap,
        open_connection,
        timeout_seconds=options.retry_timeout_ms / 1000,
        request_timeout_seconds=request_timeout_seconds,
        repeats_first_contact=repeats_first_contact,
    )
