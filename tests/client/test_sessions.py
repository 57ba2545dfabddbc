"""Logins on connections: refused, silent, cut and renewed, on both transports."""

import asyncio
import threading

import pytest

from penstock.client.calls import describe_brokers
from penstock.client.transport import blocking, connection
from penstock.core.errors import (
    AnswerLostError,
    AuthenticationError,
    BrokerUnreachableError,
    ClientError,
)
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from tests.client.sasl_server import PLAIN_LOGIN, Peer, SaslServer

LOGIN = [ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE]
SECONDS = 0.5


def open_blocking(server: SaslServer, timeout_seconds: float = 10) -> blocking.BlockingConnection:
    return blocking.connect(server.address, timeout_seconds=timeout_seconds, security=PLAIN_LOGIN)


async def open_async(server: SaslServer, timeout_seconds: float = 10) -> connection.AsyncConnection:
    return await connection.connect(
        server.address, timeout_seconds=timeout_seconds, security=PLAIN_LOGIN
    )


def failure(server: SaslServer, *, is_async: bool) -> ClientError:
    async def scenario() -> None:
        await open_async(server, SECONDS)

    with pytest.raises(ClientError) as raised:
        asyncio.run(scenario()) if is_async else open_blocking(server, SECONDS)
    return raised.value


@pytest.mark.parametrize("is_async", [False, True])
def test_a_refusal_has_the_brokers_text_in_one_line(is_async: bool) -> None:
    def refuse(peer: Peer, key: int) -> bool:
        if key == ApiKey.SASL_AUTHENTICATE:
            peer.answer(
                SaslAuthenticateResponse(
                    error_code=ErrorCode.SASL_AUTHENTICATION_FAILED,
                    error_message="no\nerror: forged \x1b[2J" + "x" * 5_000,
                    auth_bytes=b"",
                )
            )
        return key == ApiKey.SASL_AUTHENTICATE

    with SaslServer(refuse) as server:
        error = failure(server, is_async=is_async)
    assert isinstance(error, AuthenticationError)
    assert str(error).isprintable()
    assert len(str(error)) < 500


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("silent_at", LOGIN)
def test_a_silent_broker_is_left_in_time(silent_at: ApiKey, *, is_async: bool) -> None:
    with SaslServer(lambda _peer, key: key == silent_at) as server:
        error = failure(server, is_async=is_async)
    assert isinstance(error, BrokerUnreachableError)
    assert "timed out" in str(error)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("cut_at", LOGIN)
def test_a_login_that_is_cut_may_be_retried(cut_at: ApiKey, *, is_async: bool) -> None:
    def cut(_peer: Peer, key: int) -> bool:
        if key == cut_at:
            raise ConnectionError
        return False

    with SaslServer(cut) as server:
        assert isinstance(failure(server, is_async=is_async), BrokerUnreachableError)


@pytest.mark.parametrize("lifetime_ms", [0, -1])
def test_a_session_without_an_end_is_not_renewed(lifetime_ms: int) -> None:
    with SaslServer(lifetime_ms=lifetime_ms) as server:
        opened = open_blocking(server)
        for _ in range(3):
            opened.carry(describe_brokers([]))
        opened.close()
        assert server.requests[1:] == [*LOGIN, *[ApiKey.METADATA] * 3]


def test_a_renewal_waits_for_the_answers_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    with SaslServer(lifetime_ms=60_000) as server:
        opened = open_blocking(server)
        tickets = [opened.send(describe_brokers([])) for _ in range(3)]
        monkeypatch.setattr(opened, "_renew_at_seconds", 0.0)
        tickets.append(opened.send(describe_brokers([])))
        assert [opened.receive(one).cluster_id for one in tickets] == ["c"] * 4
        opened.close()
        expected = [*LOGIN, *[ApiKey.METADATA] * 3, *LOGIN, ApiKey.METADATA]
        assert server.requests[1:] == expected
        assert server.connections == 1


def test_a_renewal_that_is_cut_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    logins = []

    def cut_the_second(_peer: Peer, key: int) -> bool:
        if key == ApiKey.SASL_AUTHENTICATE:
            logins.append(key)
            if len(logins) == 2:
                raise ConnectionError
        return False

    with SaslServer(cut_the_second, lifetime_ms=60_000) as server:
        opened = open_blocking(server)
        monkeypatch.setattr(opened, "_renew_at_seconds", 0.0)
        with pytest.raises(BrokerUnreachableError, match="login"):
            opened.send(describe_brokers([]))
        opened.close()
        assert ApiKey.METADATA not in server.requests


def test_tasks_share_one_renewal() -> None:
    async def scenario(server: SaslServer) -> None:
        opened = await open_async(server)
        opened._renew_at_seconds = 0.0
        found = await asyncio.gather(*(opened.carry(describe_brokers([])) for _ in range(20)))
        assert [one.cluster_id for one in found] == ["c"] * 20
        await opened.close()

    with SaslServer(lifetime_ms=60_000) as server:
        asyncio.run(scenario(server))
        assert server.requests.count(ApiKey.SASL_AUTHENTICATE) == 2
        assert server.requests.count(ApiKey.METADATA) == 20


def test_a_cancelled_renewal_ends_the_connection() -> None:
    """The broker would take the next request for a token."""
    is_asked, may_answer = threading.Event(), threading.Event()

    def hold(_peer: Peer, key: int) -> bool:
        if key == ApiKey.SASL_HANDSHAKE and server.requests.count(key) == 2:
            is_asked.set()
            may_answer.wait(10)
        return False

    async def scenario() -> None:
        opened = await open_async(server)
        opened._renew_at_seconds = 0.0
        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(opened.carry(describe_brokers([])))
            await asyncio.to_thread(is_asked.wait, 10)
            first.cancel()
        may_answer.set()
        assert not opened.is_open
        with pytest.raises((BrokerUnreachableError, AnswerLostError)):
            await opened.carry(describe_brokers([]))
        await opened.close()

    with SaslServer(hold, lifetime_ms=60_000) as server:
        asyncio.run(scenario())


def test_a_renewal_with_a_full_socket_is_left_in_time() -> None:
    async def scenario() -> None:
        opened = await open_async(server, SECONDS)
        opened._renew_at_seconds = 0.0
        opened.pause_writing()
        with pytest.raises(BrokerUnreachableError, match="timed out"):
            await opened.carry(describe_brokers([]))
        assert not opened.is_open
        await opened.close()

    with SaslServer(lifetime_ms=60_000) as server:
        asyncio.run(scenario())
