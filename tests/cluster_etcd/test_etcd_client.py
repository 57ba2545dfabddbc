"""The store against a scripted gRPC server: answers that no healthy etcd gives."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import grpc  # type: ignore[import-untyped]
import grpc.aio  # type: ignore[import-untyped]
import pytest

from penstock.cluster.etcd import etcd_messages as messages
from penstock.cluster.etcd.etcd_store import EtcdMetadataStore
from penstock.cluster.etcd.protobuf_wire import bytes_field, number_field
from penstock.cluster.stores.port import CompactedError, Put, SessionLostError
from penstock.core.errors import AmbiguousStoreError, StoreError
from tests.cluster_etcd.etcd_stores import store_of
from tests.oracle.running_broker import HOST

Abort = tuple[grpc.StatusCode, str]
Reply = bytes | Abort


def header(revision: int, term: int = 3, cluster: int = 1) -> bytes:
    """The header of an answer."""
    numbers = ((1, cluster), (3, revision), (4, term))
    return bytes_field(1, b"".join(number_field(field, value) for field, value in numbers))


class ScriptedServer:
    """Gives the next reply of a script to each request; then it repeats the last one."""

    def __init__(self, *script: Reply) -> None:
        self._script = list(script)
        self.asked: list[str] = []
        self.url = ""

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        """Handle every method that there is."""
        method: str = details.method

        async def one(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
            return await self._next(method, context)

        async def stream(
            requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext
        ) -> AsyncIterator[bytes]:
            async for _ in requests:
                yield await self._next(method, context)

        if method in (messages.WATCH, messages.LEASE_KEEP_ALIVE):
            return grpc.stream_stream_rpc_method_handler(stream)
        return grpc.unary_unary_rpc_method_handler(one)

    async def _next(self, method: str, context: grpc.aio.ServicerContext) -> bytes:
        self.asked.append(method)
        reply = self._script.pop(0) if len(self._script) > 1 else self._script[0]
        if isinstance(reply, tuple):
            await context.abort(*reply)
        assert isinstance(reply, bytes)
        return reply

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["ScriptedServer"]:
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((self,))
        port = server.add_insecure_port(f"{HOST}:0")
        self.url = f"http://{HOST}:{port}"
        await server.start()
        try:
            yield self
        finally:
            await server.stop(None)


def run(server: ScriptedServer, body: Callable[[EtcdMetadataStore], Awaitable[None]]) -> None:
    async def main() -> None:
        async with server.serving(), store_of([server.url]) as store:
            await body(store)

    asyncio.run(main())


GARBAGE = b"\x0a\x7f<html>"


def test_an_answer_that_cannot_be_read_leaves_a_transaction_in_doubt() -> None:
    async def body(store: EtcdMetadataStore) -> None:
        with pytest.raises(AmbiguousStoreError, match="an etcd member's client address"):
            await store.transact((), (Put("/a", b"1"),))

    server = ScriptedServer(GARBAGE)
    run(server, body)
    assert server.asked == [messages.TRANSACTION]


def test_a_read_is_repeated_until_it_can_be_read_and_is_not_behind() -> None:
    async def body(store: EtcdMetadataStore) -> None:
        assert (await store.read("/a")).revision == 7
        assert (await store.read("/a")).revision == 8

    server = ScriptedServer(header(7), GARBAGE, header(6), header(9, term=2), header(8))
    run(server, body)
    assert len(server.asked) == 5


def test_a_lessor_that_is_not_primary_is_asked_again() -> None:
    """The defect is issue 21671 of etcd."""

    async def body(store: EtcdMetadataStore) -> None:
        await store.keep_alive(5)
        with pytest.raises(SessionLostError, match="session 5 has ended"):
            await store.keep_alive(5)

    not_primary = (grpc.StatusCode.UNKNOWN, "not a primary lessor")
    alive = header(1) + number_field(2, 5) + number_field(3, 9)
    server = ScriptedServer(not_primary, alive, header(1) + number_field(2, 5))
    run(server, body)
    assert len(server.asked) == 3


def test_a_server_that_is_not_etcd_is_refused_at_once() -> None:
    async def body(store: EtcdMetadataStore) -> None:
        for call in (
            store.read("/a"),
            store.transact((), (Put("/a", b""),)),
            store.open_session(9),
        ):
            with pytest.raises(StoreError, match="etcd refused") as error:
                await call
            assert not isinstance(error.value, AmbiguousStoreError)
        with pytest.raises(StoreError, match="refused to watch"):
            await anext(store.watch("/", from_revision=1))

    run(ScriptedServer((grpc.StatusCode.UNIMPLEMENTED, "unknown service")), body)


def test_a_watch_survives_an_answer_that_cannot_be_read() -> None:
    pair = bytes_field(1, b"/a") + number_field(3, 5) + bytes_field(5, b"x")
    event = header(5) + bytes_field(11, bytes_field(2, pair))
    created = header(4) + number_field(3, 1)
    late = header(6) + bytes_field(11, bytes_field(2, bytes_field(1, b"/b") + number_field(3, 5)))

    async def body(store: EtcdMetadataStore) -> None:
        watch = store.watch("/", from_revision=5)
        batch = await anext(watch)
        assert [(event.key, batch.revision) for event in batch.events] == [("/a", 5)]
        with pytest.raises(CompactedError, match="revision 5 came when 6 was expected"):
            await anext(watch)

    server = ScriptedServer(GARBAGE, created, event, late)
    run(server, body)


@pytest.mark.parametrize("seconds", [0.0, 2.9, 3_601.0, float("nan")])
def test_times_of_sessions_have_limits(seconds: float) -> None:
    async def body(store: EtcdMetadataStore) -> None:
        with pytest.raises(StoreError, match=r"etcd's are 3 to 3600 s: choose"):
            await store.open_session(seconds)

    run(ScriptedServer(GARBAGE), body)


def test_revisions_before_the_first_are_not_now() -> None:
    async def body(store: EtcdMetadataStore) -> None:
        for revision in (0, -1):
            with pytest.raises(CompactedError, match=f"revision {revision} is not kept"):
                await store.read("/a", revision=revision)

    run(ScriptedServer(GARBAGE), body)
