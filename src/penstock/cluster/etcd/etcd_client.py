"""`EtcdClient`: carries out the steps of `etcd_calls`, keeps the token, and knows the open watches.

Guarantees: every call follows `CallSteps`, which has the rules. When the calls move to another
member, all open watches are interrupted, so that each is opened again there. A token is asked for
once, however many calls need one.

It knows no keys and no revisions of the port's: `etcd_store` does.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

from penstock.cluster.etcd.answer_guard import AnswerGuard
from penstock.cluster.etcd.etcd_calls import (
    KEEP_ALIVE,
    Accept,
    Authenticate,
    CallRules,
    CallSteps,
    Fail,
    Send,
)
from penstock.cluster.etcd.etcd_channels import AttemptError, EtcdChannels, WatchStream
from penstock.cluster.etcd.etcd_faults import Fault, StatusCode
from penstock.cluster.etcd.etcd_limits import ATTEMPT_SECONDS
from penstock.cluster.etcd.etcd_messages import (
    AUTHENTICATE,
    Header,
    authenticate_request,
    read_token,
)
from penstock.cluster.etcd.etcd_options import EtcdOptions
from penstock.cluster.etcd.member_rotation import MemberRotation, Place
from penstock.cluster.etcd.protobuf_wire import MalformedMessageError
from penstock.core.clock import Clock
from penstock.core.errors import AmbiguousStoreError, StoreError


class _Answer(Protocol):
    @property
    def header(self) -> Header: ...


Answer = TypeVar("Answer", bound=_Answer)
Message = TypeVar("Message")


def understood(read: Callable[[bytes], Message], message: bytes) -> Message:
    """Read an answer. One that cannot be read is a fault: the request may have been applied."""
    try:
        return read(message)
    except MalformedMessageError as error:
        raise AttemptError(Fault(StatusCode.INTERNAL, str(error))) from error


class EtcdClient:
    """Calls to one etcd cluster. Used from one event loop."""

    def __init__(self, options: EtcdOptions, channels: EtcdChannels, clock: Clock) -> None:
        self._options = options
        self._channels = channels
        self._clock = clock
        self._token = ""
        self._one_authentication = asyncio.Lock()
        self._streams: dict[WatchStream, Place] = {}
        self.rotation = MemberRotation(len(options.endpoints), options.first_member)
        self.guard = AnswerGuard()
        self._closed = False

    async def call(
        self, rules: CallRules, method: str, request: bytes, read: Callable[[bytes], Answer]
    ) -> Answer:
        """Make one call; raise its `StoreError`."""
        self.check_open()
        steps = CallSteps(
            rules,
            self.rotation,
            self.guard,
            has_credentials=self._options.has_credentials,
            now=self._clock.monotonic(),
        )
        ask = self._channels.ask_stream if rules is KEEP_ALIVE else self._channels.ask
        step: Send | Authenticate | Fail | Accept = steps.begin()
        while True:
            if isinstance(step, Fail):
                self.check_open(step.error)
                raise step.error
            if isinstance(step, Authenticate):
                step = await self._authenticate(steps, step)
                continue
            assert isinstance(step, Send)
            if step.pause_seconds:
                await asyncio.sleep(step.pause_seconds)
                self.check_open()
            place, token = step.place, self._token
            try:
                message = await ask(
                    place.member, method, request, timeout_seconds=step.timeout_seconds, token=token
                )
                answer = understood(read, message)
            except AttemptError as error:
                step = steps.failed(error.fault, self._clock.monotonic())
                self._interrupt_left()
                if isinstance(step, Authenticate) and token != self._token:
                    # Another call has got a new token meanwhile.
                    step = steps.authenticated()
                continue
            step = steps.answered(answer.header, self._clock.monotonic())
            if isinstance(step, Accept):
                return answer
            self._interrupt_left()

    async def open_watch(self, place: Place, request: bytes) -> WatchStream:
        """Open a stream of a watch at a member; `forget` it after use. May raise `AttemptError`."""
        self.check_open()
        stream = await self._channels.open_watch(
            place.member, request, timeout_seconds=ATTEMPT_SECONDS, token=self._token
        )
        self._streams[stream] = place
        self._interrupt_left()
        return stream

    def forget(self, stream: WatchStream) -> None:
        """End a stream."""
        self._streams.pop(stream, None)
        stream.interrupt("the watch ended")

    def leave(self, place: Place) -> None:
        """Move all calls and watches to another member, unless they have moved."""
        self.rotation.leave(place)
        self._interrupt_left()

    async def renew_token(self, place: Place) -> None:
        """Get a new token from a member. May raise `AttemptError`."""
        used = self._token
        async with self._one_authentication:
            if self._token != used:
                return
            password = self._options.password
            request = authenticate_request(
                self._options.user, password.reveal() if password else ""
            )
            message = await self._channels.ask(
                place.member, AUTHENTICATE, request, timeout_seconds=ATTEMPT_SECONDS
            )
            self._token = understood(read_token, message).token

    def is_closed(self) -> bool:
        """Return whether `close` was called."""
        return self._closed

    async def close(self) -> None:
        """End all calls and watches."""
        self._closed = True
        for stream in tuple(self._streams):
            stream.interrupt("the store was closed")
        await self._channels.close()

    def check_open(self, cause: StoreError | None = None) -> None:
        """Raise an error if the client was closed; a call in doubt stays in doubt."""
        if self._closed:
            is_in_doubt = isinstance(cause, AmbiguousStoreError)
            kind = AmbiguousStoreError if is_in_doubt else StoreError
            raise kind("the metadata store is closed") from cause

    async def _authenticate(
        self, steps: CallSteps, step: Authenticate
    ) -> Send | Authenticate | Fail | Accept:
        try:
            await self.renew_token(step.place)
        except AttemptError as error:
            following = steps.authentication_failed(error.fault, self._clock.monotonic())
            self._interrupt_left()
            return following
        return steps.authenticated()

    def _interrupt_left(self) -> None:
        """Interrupt the watches of members that the calls have left."""
        for stream, place in tuple(self._streams.items()):
            if self._closed or place != self.rotation.place:
                stream.interrupt("the calls moved to another member")
