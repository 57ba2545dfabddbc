"""A channel that another caller closes is a failed attempt, and does not cancel a task."""

import asyncio
from collections.abc import Awaitable, Callable

import grpc  # type: ignore[import-untyped]
import pytest

from penstock.cluster.etcd.etcd_channels import AttemptError, EtcdChannels
from penstock.cluster.etcd.etcd_options import EtcdOptions, parse_endpoint


class ClosedChannel:
    """A channel without a connection; a call on it is cancelled, as gRPC does at a close."""

    def __init__(self, state: grpc.ChannelConnectivity) -> None:
        self._state = state
        self.is_waiting = asyncio.Event()

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        return self._state

    async def wait_for_state_change(self, _state: grpc.ChannelConnectivity) -> None:
        await self._cancelled()

    def unary_unary(self, _method: str) -> Callable[..., Awaitable[bytes]]:
        return self._call

    async def _call(self, _request: bytes, **_settings: float) -> bytes:
        await self._cancelled()
        return b""

    async def _cancelled(self) -> None:
        self.is_waiting.set()
        await asyncio.sleep(0)
        raise asyncio.CancelledError

    async def close(self) -> None:
        """Nothing is open."""


def channels_with(channel: ClosedChannel, monkeypatch: pytest.MonkeyPatch) -> EtcdChannels:
    channels = EtcdChannels(EtcdOptions(endpoints=(parse_endpoint("http://127.0.0.1:1"),)))
    monkeypatch.setattr(EtcdChannels, "_open", lambda *_: channel)
    return channels


@pytest.mark.parametrize(
    "state", [grpc.ChannelConnectivity.TRANSIENT_FAILURE, grpc.ChannelConnectivity.CONNECTING]
)
def test_the_close_of_another_caller_is_a_failed_attempt(
    state: grpc.ChannelConnectivity, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        channels = channels_with(ClosedChannel(state), monkeypatch)
        with pytest.raises(AttemptError, match="the channel was closed"):
            await channels.ask(0, "/method", b"", timeout_seconds=1)
        with pytest.raises(AttemptError, match="the channel was closed"):
            await channels.open_watch(0, b"", timeout_seconds=1)

    asyncio.run(scene())


def test_a_cancelled_task_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        channel = ClosedChannel(grpc.ChannelConnectivity.CONNECTING)
        channels = channels_with(channel, monkeypatch)
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(channels.ask(0, "/method", b"", timeout_seconds=1))
            await channel.is_waiting.wait()
            task.cancel()
        assert task.cancelled()

    asyncio.run(scene())
