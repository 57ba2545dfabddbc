"""A broker with gRPC in the event loop of a test, and a client whose code protoc generates."""

import asyncio
import importlib
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any

import grpc  # type: ignore[import-untyped]
import grpc.aio  # type: ignore[import-untyped]
from grpc_tools import protoc  # type: ignore[import-untyped]

import penstock.edge.grpc_gateway
from penstock import BrokerServer
from tests.node.push.push_stage import WAIT_SECONDS, settings_from

PROTO = Path(penstock.edge.grpc_gateway.__file__).with_name("penstock.proto")
PLAIN_TEXT = """
[node]
storage = "memory"
[listener]
port = 0
[edge]
grpc_port = 0
"""


@cache
def generated() -> ModuleType:
    """Return the messages that protoc generates from `penstock.proto`."""
    folder = tempfile.mkdtemp()
    status = protoc.main(
        [
            "protoc",
            f"--proto_path={PROTO.parent}",
            f"--proto_path={files('grpc_tools') / '_proto'}",
            f"--python_out={folder}",
            str(PROTO),
        ]
    )
    assert status == 0
    sys.path.insert(0, folder)
    try:
        return importlib.import_module("penstock_pb2")
    finally:
        sys.path.remove(folder)


class Stub:
    """The five methods of the service, with generated messages."""

    def __init__(self, channel: Any) -> None:  # noqa: ANN401
        pb = generated()
        service = pb.DESCRIPTOR.services_by_name["Penstock"]
        self.channel = channel
        for method in service.methods:
            open_method = channel.stream_stream if method.name == "Session" else channel.unary_unary
            call = open_method(
                f"/{service.full_name}/{method.name}",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=getattr(pb, method.output_type.name).FromString,
            )
            setattr(self, method.name, call)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        raise AttributeError(name)


@asynccontextmanager
async def grpc_broker(
    text: str = PLAIN_TEXT, topics: dict[str, int] | None = None
) -> AsyncIterator[BrokerServer]:
    """Run a broker with topics and their numbers of partitions."""
    async with asyncio.timeout(WAIT_SECONDS), BrokerServer(settings_from(text)) as broker:
        for name, count in (topics or {"t": 1}).items():
            await broker.create_topic(name, partitions=count)
        yield broker


@asynccontextmanager
async def grpc_stub(
    broker: BrokerServer,
    credentials: Any = None,  # noqa: ANN401
    **options: int | str,
) -> AsyncIterator[Stub]:
    """Connect to the port of a broker."""
    address = f"127.0.0.1:{broker.grpc_port}"
    named = (("grpc.use_local_subchannel_pool", 1), *options.items())
    if credentials is None:
        channel = grpc.aio.insecure_channel(address, options=named)
    else:
        channel = grpc.aio.secure_channel(address, credentials, options=named)
    async with channel:
        yield Stub(channel)


async def status_of(call: Any) -> tuple[str, str, dict[str, str]]:  # noqa: ANN401
    """Return the status, the message and the metadata of a call that fails."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code().name, error.details() or "", dict(error.trailing_metadata())
    raise AssertionError("the call did not fail")
