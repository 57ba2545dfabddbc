"""Collects the facts of a broker's listeners on this machine, for `penstock doctor`.

A port in use is probed in the way of its listener: a TLS handshake where it has TLS, then a request
for API versions, which a listener with SASL answers before the login. No credential is sent, so the
broker's certificate is not verified here: it is compared with the file of the settings.
"""

import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from penstock.cli.doctor.certificate_probe import first_certificate
from penstock.cli.doctor.facts import PortFacts
from penstock.cli.doctor.host import probe_port
from penstock.cli.doctor.network import probe_address
from penstock.client.transport.addresses import Address
from penstock.client.transport.blocking import BlockingConnection, Stream, connect, reason
from penstock.core.errors import PenstockError
from penstock.core.settings.listener_declarations import NamedListener

if TYPE_CHECKING:
    import ssl

WILDCARDS: Final = frozenset({"", "0.0.0.0", "::", "*"})  # noqa: S104 (replaced by localhost)


def local_address(listener: NamedListener) -> Address:
    """Return the address of a listener for clients on this machine."""
    host = "localhost" if listener.host in WILDCARDS else listener.host
    return Address(host, listener.port)


def advertised_address(listener: NamedListener) -> Address:
    """Return the address that clients use after their first request."""
    local = local_address(listener)
    return Address(
        listener.advertised_host or local.host, listener.advertised_port or listener.port
    )


def probe_listener(
    listener: NamedListener, timeout_seconds: float, *, is_declared: bool
) -> PortFacts:
    """Return whether a broker could listen, or answers already."""
    host = listener.host
    facts = replace(
        probe_port("" if host in WILDCARDS else host, listener.port),
        host=host,
        listener=listener.name if is_declared else "",
        protocol=listener.protocol,
    )
    if not facts.is_taken:
        return facts
    address = local_address(listener)
    if listener.has_tls:
        return _probe_tls(facts, listener, address, timeout_seconds)
    if listener.has_sasl:
        return _probe_versions(facts, address, timeout_seconds)
    seen = probe_address(address, timeout_seconds)
    return replace(
        facts,
        answers_as_broker=seen.speaks_kafka,
        speak_problem=seen.speak_problem or seen.connect_problem or seen.resolve_problem,
    )


def _probe_versions(facts: PortFacts, address: Address, timeout_seconds: float) -> PortFacts:
    try:
        connect(address, timeout_seconds=timeout_seconds).close()
    except PenstockError as error:
        return replace(facts, speak_problem=str(error))
    return replace(facts, answers_as_broker=True)


def _probe_tls(
    facts: PortFacts, listener: NamedListener, address: Address, timeout_seconds: float
) -> PortFacts:
    from penstock.client.transport.tls_socket import TlsSocket, late_failure

    tls = listener.tls
    assert tls is not None
    try:
        secured = _handshake(address, advertised_address(listener), timeout_seconds)
    except PenstockError as error:
        return replace(facts, speak_problem=str(error))
    served = secured.getpeercert(binary_form=True)
    wanted = first_certificate(tls.certificate)
    facts = replace(facts, serves_other_certificate=wanted is not None and served != wanted)
    stream: Stream = TlsSocket(secured)
    connection = BlockingConnection(stream, address, timeout_seconds=timeout_seconds)
    try:
        connection.negotiate()
    except PenstockError as error:
        # With TLS 1.3 a server judges a missing certificate after the client's handshake is done.
        is_ended = not isinstance(error.__cause__, TimeoutError)
        if tls.client_auth == "required" and is_ended:
            return replace(facts, needs_client_certificate=True)
        return replace(facts, speak_problem=str(late_failure(address, error) or error))
    finally:
        connection.close()
    return replace(facts, answers_as_broker=True)


def _handshake(address: Address, named: Address, timeout_seconds: float) -> "ssl.SSLSocket":
    """Return a TLS connection whose certificate is not verified; raise `PenstockError`."""
    import ssl

    from penstock.client.transport.tls_errors import certificate_name, tls_failure

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    opened: socket.socket | None = None
    try:
        opened = socket.create_connection(address, timeout_seconds)
        return context.wrap_socket(opened, server_hostname=certificate_name(named))
    except ssl.SSLError as error:
        failure: PenstockError = tls_failure(address, error)
    except (OSError, ValueError) as error:
        words = reason(error) if isinstance(error, OSError | UnicodeError) else str(error)
        failure = PenstockError(f"the TLS handshake with {address} failed: {words}.")
    if opened is not None:
        opened.close()
    raise failure
