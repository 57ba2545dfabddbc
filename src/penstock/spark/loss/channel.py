"""`LossChannel`: tasks report unreadable records to a socket of the driver.

Only a stream with `failOnDataLoss=false` opens it. It listens at the driver's local address towards
the brokers. Executors reach the brokers, too, so they are in the same network, or on the same
machine if that address is the loopback. Nothing waits for reports: the operating system keeps them
until the driver decides the next batch.

Reports are best effort: a task that cannot reach the driver logs this in addition to its losses,
and continues. No query depends on the channel.
"""

import secrets
import socket
import time
from collections.abc import Iterable
from contextlib import closing
from typing import Final

from penstock.client.transport.addresses import Address
from penstock.spark.loss.data_loss import Loss
from penstock.spark.loss.losses import LOGGER
from penstock.spark.loss.reports import REPORT_BYTES_MAX, LossBook, LossReport, write_report
from penstock.spark.planning import LossAddress

REPORTS_WAITING_MAX: Final = 4_096
"""The maximum number of waiting reports; the system may allow fewer (`net.core.somaxconn`). A task
whose report is rejected counts as one that cannot reach the driver."""
SEND_SECONDS_MAX: Final = 2.0
"""The longest time that a task waits for the driver: its rows are more important."""
RECEIVE_SECONDS_MAX: Final = 0.5
"""A task sends its report before it ends, so data that arrives later is not a report."""
TAKE_SECONDS_MAX: Final = 2.0
"""The driver's time for reports before a batch; later reports wait for the next batch."""


class LossChannel:
    """The driver's end of the channel, for one run of a stream."""

    def __init__(self, towards: Iterable[Address]) -> None:
        """Listen at the local address towards these brokers, or raise `OSError`."""
        family, host = _own_address(towards)
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._socket.bind((host, 0))
            self._socket.listen(REPORTS_WAITING_MAX)
            self._socket.settimeout(0)
        except OSError:
            self._socket.close()
            raise
        self._host = host
        self._port: int = self._socket.getsockname()[1]
        self._book = LossBook(secrets.token_hex(16))

    def begin_batch(self) -> LossAddress:
        """Return the address for the next batch's reports; ignore those of the last batch."""
        batch = self._book.begin_batch()
        return LossAddress(self._host, self._port, self._book.secret, batch)

    def heard(self) -> list[Loss]:
        """Return the losses that tasks of this batch reported since the last call."""
        return self._book.take(self._take())

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _take(self) -> Iterable[bytes]:
        deadline_seconds = time.monotonic() + TAKE_SECONDS_MAX
        while time.monotonic() < deadline_seconds:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                # No task is connecting, or it has disconnected.
                return
            with closing(connection):
                yield _received(connection)


def open_loss_channel(towards: Iterable[Address]) -> LossChannel | None:
    """Return the channel; log a warning and return None if it cannot be opened."""
    try:
        return LossChannel(towards)
    except OSError as error:
        LOGGER.warning(
            "the driver cannot listen for losses that tasks find while they read (%s): they are "
            "counted in the logs of the executors only, and not in the progress of the query.",
            error,
        )
        return None


def report_to_driver(to: LossAddress, report: LossReport) -> None:
    """Send a report; log a warning if the driver is unreachable."""
    try:
        with socket.create_connection((to.host, to.port), SEND_SECONDS_MAX) as connection:
            connection.sendall(write_report(to, report))
    except OSError as error:
        LOGGER.warning(
            "this loss could not be reported to the driver at %s:%d (%s): it is counted in this "
            "log only, and not in the progress of the query. Let executors connect to the driver.",
            to.host,
            to.port,
            error,
        )


def _own_address(towards: Iterable[Address]) -> tuple[int, str]:
    """Return the family and host of the local address towards the first reachable broker."""
    problem: OSError | None = None
    for address in towards:
        try:
            for family, _, _, _, place in socket.getaddrinfo(
                address.host, address.port, type=socket.SOCK_DGRAM
            ):
                # Nothing is sent: connecting a datagram socket only chooses the route.
                with socket.socket(family, socket.SOCK_DGRAM) as probe:
                    probe.connect(place)
                    return family, str(probe.getsockname()[0])
        except OSError as error:
            problem = error
    raise problem or OSError("no address of a broker is known")


def _received(connection: socket.socket) -> bytes:
    """Return the bytes up to the end of the connection, cut at the size limit of a report."""
    received = b""
    try:
        connection.settimeout(RECEIVE_SECONDS_MAX)
        while len(received) <= REPORT_BYTES_MAX:
            piece = connection.recv(REPORT_BYTES_MAX)
            if not piece:
                break
            received += piece
    except OSError:
        return b""
    return received[:REPORT_BYTES_MAX]
