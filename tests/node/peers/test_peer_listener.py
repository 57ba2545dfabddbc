"""The listener for brokers: its own APIs and limits, no access rules, and TLS from both sides."""

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, cast

import pytest

from penstock.broker.connections.server import Listener
from penstock.broker.tls.contexts import build_server_tls
from penstock.broker.tls.tls_files import TlsFiles, read_files
from penstock.client.security.options import NO_SECURITY, Security
from penstock.client.transport.addresses import Address
from penstock.client.transport.call import Call
from penstock.client.transport.connection import AsyncConnection, connect
from penstock.cluster.image import Endpoint
from penstock.core.errors import ClientError, ConfigError, TlsHandshakeError
from penstock.core.metrics import Registry
from penstock.core.settings.cluster_settings import ClusterSettings
from penstock.core.settings.contradictions import contradictions
from penstock.core.settings.listener_declarations import NamedListener
from penstock.core.settings.tree import Settings
from penstock.core.types import CLUSTER_LISTENER
from penstock.node.entrances import entrance_of
from penstock.node.peers.peer_limits import CONNECTIONS_MAX
from penstock.node.peers.peer_listener import (
    PEER_HANDLERS,
    bind_peers,
    peer_security,
    peer_services,
)
from penstock.node.security.certificates_in_use import tls_files
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse
from penstock.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.broker.handlers.fakes import FakeServices
from tests.broker.tls.tls_stage import identities, now
from tests.oracle.certificates import Identity

ETCD = ("http://127.0.0.1:2379",)


def cluster_settings(broker: Identity | None = None) -> ClusterSettings:
    if broker is None:
        return ClusterSettings(etcd=ETCD, listen_port=0)
    return ClusterSettings(
        etcd=ETCD,
        listen_port=0,
        tls_certificate=str(broker.chain),
        tls_key=str(broker.key),
        tls_ca=str(identities().authority.certificate),
    )


class DenyAll:
    """Access rules that allow nothing."""

    def allows(self, *_: object, **__: object) -> bool:
        return False


class Stage:
    """A bound listener over the services of a test."""

    def __init__(self, stack: AsyncExitStack, settings: ClusterSettings) -> None:
        self.fakes = FakeServices()
        self.metrics = Registry()
        files = tls_files(Settings(cluster=settings)).get(CLUSTER_LISTENER)
        self.listener: Listener
        self.endpoint: Endpoint
        self.listener, self.endpoint = bind_peers(
            replace(self.fakes.services, access=cast("Any", DenyAll())),
            settings,
            self.metrics,
            stack,
            context_source=None if files is None else lambda: _context(files),
        )

    async def connect(self, security: Security = NO_SECURITY) -> AsyncConnection:
        address = Address(self.endpoint.host, self.endpoint.port)
        return await connect(address, timeout_seconds=5, security=security)


def _context(files: TlsFiles) -> Any:  # noqa: ANN401
    return build_server_tls(files, read_files(files), now()).context


def run(act: Callable[[Stage], Awaitable[None]], settings: ClusterSettings | None = None) -> None:
    async def begin() -> None:
        async with AsyncExitStack() as stack:
            stage = Stage(stack, settings or cluster_settings())
            await stage.listener.start()
            stack.push_async_callback(stage.listener.stop)
            await act(stage)

    asyncio.run(begin())


MARKERS = WriteTxnMarkersRequest(
    markers=(
        WritableTxnMarker(
            producer_id=1,
            producer_epoch=0,
            transaction_result=True,
            topics=(WritableTxnMarkerTopic(name="absent", partition_indexes=(0,)),),
            coordinator_epoch=0,
        ),
    )
)


def test_it_serves_the_apis_of_brokers_and_no_others() -> None:
    async def act(stage: Stage) -> None:
        async with await stage.connect() as connection:
            assert sorted(connection._versions) == sorted(int(key) for key in PEER_HANDLERS)
            assert ApiKey.METADATA not in PEER_HANDLERS
            request = MetadataRequest(topics=())
            # As a client would send it that ignores the versions.
            connection._versions = {**connection._versions, int(ApiKey.METADATA): (0, 9)}
            with pytest.raises(ClientError):
                await connection.carry(Call(request, MetadataResponse, lambda answer: answer))

    run(act)


def test_access_rules_are_for_clients() -> None:
    async def act(stage: Stage) -> None:
        async with await stage.connect() as connection:
            call = Call(MARKERS, WriteTxnMarkersResponse, lambda answer: answer)
            answer = await connection.carry(call)
            code = answer.markers[0].topics[0].partitions[0].error_code
            assert code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "denied to clients"
        metrics = stage.metrics.snapshot()
        assert metrics['peer_requests_total{api="WriteTxnMarkers"}'] == 1
        assert metrics["peer_received_bytes_total"] > 0

    run(act)


def test_brokers_have_their_own_limits() -> None:
    fakes = FakeServices()
    own = peer_services(fakes.services)
    assert own.fetch_sessions is not fakes.services.fetch_sessions
    assert own.unsent_answers is not fakes.services.unsent_answers
    assert own.quotas is not fakes.services.quotas
    assert own.replicas is fakes.services.replicas

    async def act(stage: Stage) -> None:
        (most,) = (one for one in stage.listener.limits() if one.name == "connections")
        assert most.limit == CONNECTIONS_MAX

    run(act)


def test_the_advertised_address_is_that_of_the_settings() -> None:
    settings = cluster_settings().model_copy(
        update={"advertised_host": "broker1.example", "advertised_port": 7000}
    )

    async def act(stage: Stage) -> None:
        assert stage.endpoint == Endpoint(CLUSTER_LISTENER, "broker1.example", 7000)

    run(act, settings)


def test_a_port_in_use_names_the_setting() -> None:
    async def act(stage: Stage) -> None:
        settings = cluster_settings().model_copy(update={"listen_port": stage.endpoint.port})
        async with AsyncExitStack() as stack:
            with pytest.raises(ConfigError) as raised:
                bind_peers(stage.fakes.services, settings, Registry(), stack)
        assert "cluster.listen_port" in (raised.value.hint or "")

    run(act)


@pytest.mark.parametrize(
    ("host", "warns"),
    [("127.0.0.1", False), ("0.0.0.0", True)],
)
def test_brokers_without_tls_on_an_open_address_are_warned_of(
    host: str, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    settings = cluster_settings().model_copy(
        update={"listen_host": host, "advertised_host": "127.0.0.1"}
    )

    async def act(_: Stage) -> None:
        pass

    run(act, settings)
    assert any("no TLS" in record.getMessage() for record in caplog.records) == warns


# --- TLS ---


@functools.cache
def broker() -> Identity:
    return identities().authority.broker()


def test_brokers_prove_their_certificates_to_each_other() -> None:
    settings = cluster_settings(broker())

    async def act(stage: Stage) -> None:
        assert stage.endpoint.protocol == "SSL"
        async with await stage.connect(peer_security(settings)) as connection:
            assert connection.is_open
        with pytest.raises(ClientError):
            await stage.connect(NO_SECURITY)

    run(act, settings)


def test_a_certificate_of_another_authority_is_refused() -> None:
    stranger = peer_security(cluster_settings(identities().stranger))

    async def act(stage: Stage) -> None:
        with pytest.raises(TlsHandshakeError):
            await stage.connect(stranger)

    run(act, cluster_settings(broker()))


def test_without_certificates_there_is_no_tls() -> None:
    assert peer_security(cluster_settings()) is NO_SECURITY
    assert tls_files(Settings(cluster=cluster_settings())) == {}


# --- The name ---


def listener_for_clients() -> NamedListener:
    return NamedListener(name=CLUSTER_LISTENER, protocol="PLAINTEXT", host="127.0.0.1", port=0)


def test_a_listener_for_clients_cannot_have_its_name() -> None:
    settings = Settings(listeners=(listener_for_clients(),))
    assert any(f"the name {CLUSTER_LISTENER}" in one for one in contradictions(settings, {}))
    with pytest.raises(ConfigError, match=CLUSTER_LISTENER):
        entrance_of(settings.all_listeners[0], cast("Any", None), is_declared=True)
