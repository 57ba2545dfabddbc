"""Connects commands to a cluster, with blocking connections: a command does one thing at once."""

from collections.abc import Callable, Sequence
from types import TracebackType

from penstock.cli.client_settings import ClientSettings, chosen_bootstrap, client_settings
from penstock.cli.options import blamed_on
from penstock.cli.output import note
from penstock.client.cluster import Cluster
from penstock.client.transport.addresses import Address, parse_addresses
from penstock.client.transport.blocking import BlockingConnection, connect
from penstock.core.errors import AdvertisedAddressError, BrokerUnreachableError, PenstockError


class CommandCluster(Cluster):
    """A cluster that adds a hint, where there is one, to errors that leave the `with` block.

    A broker that is unreachable at its advertised address is retried until the timeout, because it
    may be restarting. A note reports this at once: most often the address is wrong.
    """

    def __init__(
        self,
        bootstrap: Sequence[Address],
        open_connection: Callable[[Address], BlockingConnection],
        *,
        timeout_seconds: float,
        is_quiet: bool,
    ) -> None:
        super().__init__(bootstrap, open_connection, timeout_seconds=timeout_seconds)
        self._seconds_in_all = timeout_seconds
        self._is_quiet = is_quiet

    def unreachable(
        self, address: Address, error: BrokerUnreachableError
    ) -> BrokerUnreachableError:
        """Report once that the command retries an advertised address."""
        explained = super().unreachable(address, error)
        if isinstance(explained, AdvertisedAddressError) and not self._is_quiet:
            self._is_quiet = True
            note(f"note: {explained} Retrying for up to {self._seconds_in_all:g} s; Ctrl-C ends.")
        return explained

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Add the nearest name to an error about an unknown name, then close every connection."""
        try:
            if isinstance(error, PenstockError) and not error.hint:
                from penstock.cli.text.suggestions import hint_for

                error.hint = hint_for(error, self)
        finally:
            super().__exit__(kind, error, trace)


def open_cluster(
    bootstrap: str,
    timeout_seconds: float,
    *,
    is_quiet: bool = False,
    settings: ClientSettings | None = None,
) -> CommandCluster:
    """Return the cluster at `host:port,host:port`; it connects at the first request.

    With `is_quiet` it writes no notes: shell completion has no place for them. Without `settings`
    it uses those of the running command.
    """
    settings = settings or client_settings(is_quiet=is_quiet)
    with blamed_on("--bootstrap-server"):
        addresses = parse_addresses(chosen_bootstrap(bootstrap, settings))
    return CommandCluster(
        addresses,
        lambda address: connect(
            address,
            timeout_seconds=timeout_seconds,
            client_id=settings.client_id,
            security=settings.security,
        ),
        timeout_seconds=timeout_seconds,
        is_quiet=is_quiet,
    )
