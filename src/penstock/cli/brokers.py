"""How commands reach a cluster: by blocking connections, since a command does one thing at once."""

from types import TracebackType

from penstock.cli.options import blamed_on
from penstock.client.addresses import parse_addresses
from penstock.client.blocking import connect
from penstock.client.cluster import Cluster
from penstock.core.errors import PenstockError


class CommandCluster(Cluster):
    """A cluster whose errors leave the `with` block with a hint, where there is one."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Add the nearest name to an error about an unknown one, then close every connection."""
        try:
            if isinstance(error, PenstockError) and not error.hint:
                from penstock.cli.suggestions import hint_for

                error.hint = hint_for(error, self)
        finally:
            super().__exit__(kind, error, trace)


def open_cluster(bootstrap: str, timeout_seconds: float) -> CommandCluster:
    """The cluster behind `host:port,host:port`; nothing is connected until something is asked."""
    with blamed_on("--bootstrap-server"):
        addresses = parse_addresses(bootstrap)
    return CommandCluster(
        addresses,
        lambda address: connect(address, timeout_seconds=timeout_seconds),
        timeout_seconds=timeout_seconds,
    )
