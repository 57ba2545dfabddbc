"""OpenSSL's cache of sessions stays empty, and clients with tickets still resume."""

import ssl
from collections.abc import Callable

import pytest

from penstock.broker.tls.contexts import build_server_tls
from penstock.broker.tls.tls_files import read_files
from tests.broker.tls.tls_stage import Connection, Stage, identities, now, server_files


def new_stage() -> Stage:
    """A stage whose context no other test uses."""
    files = server_files("required")
    return Stage(context=build_server_tls(files, read_files(files), now()).context)


def client(version: ssl.TLSVersion, *, takes_tickets: bool) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(identities().authority.certificate))
    context.minimum_version = context.maximum_version = version
    context.load_cert_chain(identities().client.chain, identities().client.key)
    if not takes_tickets:
        context.options |= ssl.OP_NO_TICKET
    return context


def end_by_client(connection: Connection) -> None:
    """The client sends close_notify, and the broker closes."""
    connection.inner.stays_open = False
    with pytest.raises(ssl.SSLWantReadError):
        connection.client.unwrap()
    connection.deliver(connection.written())
    assert connection.raw.is_closed
    connection.lose()


def end_by_broker(connection: Connection) -> None:
    connection.inner.out.close()
    assert connection.raw.is_closed
    connection.lose()


@pytest.mark.parametrize("end", [end_by_client, end_by_broker])
@pytest.mark.parametrize("takes_tickets", [True, False], ids=["tickets", "ids"])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_no_session_stays_after_its_connection(
    version: ssl.TLSVersion, takes_tickets: bool, end: Callable[[Connection], None]
) -> None:
    stage = new_stage()
    context = client(version, takes_tickets=takes_tickets)
    for _ in range(5):
        connection = stage.connect(context)
        connection.shake_hands()
        end(connection)
        del connection
    assert stage.context.session_stats()["number"] == 0


def test_sessions_of_the_cache_exist_as_long_as_their_connections() -> None:
    """The test above would find one that stays."""
    stage = new_stage()
    connection = stage.connect(client(ssl.TLSVersion.TLSv1_2, takes_tickets=False))
    connection.shake_hands()
    assert stage.context.session_stats()["number"] == 1


@pytest.mark.parametrize("takes_tickets", [True, False], ids=["tickets", "ids"])
def test_a_client_hears_the_end_unless_its_session_is_in_the_cache(takes_tickets: bool) -> None:
    stage = new_stage()
    connection = stage.connect(client(ssl.TLSVersion.TLSv1_2, takes_tickets=takes_tickets))
    connection.shake_hands()
    connection.inner.out.write(b"answer")
    connection.inner.out.close()
    assert connection.raw.is_closed
    assert connection.receive() == b"answer"
    if takes_tickets:
        connection.client.unwrap()
        return
    with pytest.raises(ssl.SSLWantReadError):
        connection.client.unwrap()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_ticket_resumes_after_its_connection_has_ended(version: ssl.TLSVersion) -> None:
    stage = new_stage()
    context = client(version, takes_tickets=True)
    first = stage.connect(context)
    first.shake_hands()
    first.receive()
    session = first.client.session
    assert session is not None
    end_by_broker(first)
    second = stage.connect(context, session=session)
    second.shake_hands()
    assert second.client.session_reused
    assert second.inner.certificate is not None
