"""How commands reach a cluster: by blocking connections, since a command does one thing at once."""

from penstock.cli.options import blamed_on
from penstock.client.addresses import parse_addresses
from penstock.client.blocking import connect
from penstock.client.cluster import Cluster


def open_cluster(bootstrap: str, timeout_seconds: float) -> Cluster:
    """The cluster behind `host:port,host:port`; nothing is connected until something is asked."""
    with blamed_on("--bootstrap-server"):
        addresses = parse_addresses(bootstrap)
    return Cluster(
        addresses,
        lambda address: connect(address, timeout_seconds=timeout_seconds),
        timeout_seconds=timeout_seconds,
    )
