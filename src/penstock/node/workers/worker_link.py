"""`WorkerLink`: a worker's side of the channel to its supervisor.

The first message has the worker's number, the shared sockets and the secret; it is read before the
event loop runs, because the settings depend on it. Later the worker reports that it answers, and
learns the states of all workers. When the supervisor is gone, `on_gone` is called: a worker without
its metadata store must end.
"""

import asyncio
import socket
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

from penstock.core.errors import ConfigError, PenstockError
from penstock.core.settings.config import Loaded
from penstock.node.workers.channel_store import ChannelStore
from penstock.node.workers.worker_channel import Channel, Message, packed, receive_now
from penstock.node.workers.worker_parts import WorkerParts, WorkerState
from penstock.node.workers.worker_settings import worker_settings
from penstock.security.secret import Secret


class WorkerLink:
    """The supervisor, as one worker knows it."""

    def __init__(self, end: socket.socket, hello: dict[str, Any]) -> None:
        self._end = end
        self._spare = end.dup()
        """For a last message: the event loop closes the other one."""
        self._hello = hello
        self._channel: Channel | None = None
        self._states: tuple[WorkerState, ...] = ()
        self._reading: asyncio.Task[None] | None = None
        self.number: int = hello["worker"]

    @classmethod
    def receive(cls, descriptor: int) -> "WorkerLink":
        """Read the first message of the supervisor from this descriptor; blocks."""
        try:
            end = socket.socket(fileno=descriptor)
        except OSError as error:
            raise ConfigError(
                f"descriptor {descriptor} is no channel to a supervisor: {error.strerror}",
                hint="Only `penstock serve --workers` starts a worker.",
            ) from error
        end.set_inheritable(False)
        message = receive_now(end)
        if message is None or message[0] != "hello":
            raise ConfigError("the supervisor of this worker is gone.")
        return cls(end, message[1])

    def adapted(self, loaded: Loaded) -> Loaded:
        """Return the settings of this worker."""
        settings = worker_settings(loaded.settings, self.number)
        if not self._hello["has_admin"]:
            settings = settings.model_copy(
                update={"admin": settings.admin.model_copy(update={"enabled": False})}
            )
        return replace(loaded, settings=settings)

    async def open(self, on_gone: Callable[[], None]) -> WorkerParts:
        """Use the channel on the event loop; return the parts of the supervisor."""
        self._end.setblocking(False)  # noqa: FBT003 (positional only)
        channel = self._channel = await Channel.open(self._end)
        store = ChannelStore(channel, self._take)
        loop = asyncio.get_running_loop()
        self._reading = loop.create_task(store.run(), name="supervisor")
        self._reading.add_done_callback(lambda task: None if task.cancelled() else on_gone())
        return WorkerParts(
            number=self.number,
            store=store,
            shared={
                name: [_listening(one) for one in descriptors]
                for name, descriptors in self._hello["shared"].items()
            },
            secret=Secret(self._hello["secret"]),
            states=self.states,
        )

    def states(self) -> Sequence[WorkerState]:
        """Return all workers, as the supervisor last reported them."""
        return self._states

    def report_ready(self, address: str, admin: str | None) -> None:
        """Report that this worker answers its clients."""
        assert self._channel is not None
        self._channel.send("ready", address, admin)

    def report_failure(self, error: PenstockError) -> None:
        """Report why this worker does not start; the supervisor shows it."""
        try:
            self._spare.setblocking(True)  # noqa: FBT003 (positional only)
            self._spare.sendall(packed(["failure", str(error), error.hint]))
        except OSError:
            pass  # the supervisor is gone, and the exit code remains

    def _take(self, message: Message) -> None:
        match message:
            case ["states", list(states)]:
                self._states = tuple(WorkerState(**one) for one in states)
            case _:
                pass


def _listening(descriptor: int) -> socket.socket:
    found = socket.socket(fileno=descriptor)
    found.set_inheritable(False)
    found.setblocking(False)  # noqa: FBT003 (positional only)
    return found


def written_states(states: Sequence[WorkerState]) -> list[dict[str, Any]]:
    """Return the states for a message."""
    return [asdict(one) for one in states]
