"""`QueueHeartbeats`: the membership of one queue subscription in a share group.

A heartbeat goes to the coordinator of the group in the interval that it asked for. A member that
the coordinator does not know any more joins again under the same id. A heartbeat that fails for
another reason is repeated; one that can never succeed is reported once, also if the coordinator has
moved to another broker.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Final

from penstock.edge.push.ports import PushRefusedError
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from penstock.protocol.push.payloads import Refusal

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
JOIN_TRIES: Final = 50
JOIN_PAUSE_SECONDS: Final = 0.1
RETRY_SECONDS: Final = 1.0
MOVED_TRIES: Final = 5
"""Heartbeats in a row that find the coordinator on another broker, before the member is lost: the
group would expire it, and its client has to subscribe at that broker."""
_JOINS_AGAIN: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)
_LOADING: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)

Send = Callable[[ShareGroupHeartbeatRequest], Awaitable[ShareGroupHeartbeatResponse]]
Start = Callable[[Coroutine[object, object, None]], None]


class QueueHeartbeats:
    """Joins, stays in and leaves one share group."""

    def __init__(
        self,
        group: str,
        member_id: str,
        topic: str,
        send: Send,
        start: Start,
        lost: Callable[[Refusal], None],
    ) -> None:
        self._group = group
        self._member_id = member_id
        self._topic = topic
        self._send = send
        self._start = start
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._epoch = JOIN_EPOCH
        self._interval_seconds = RETRY_SECONDS
        self._timer: asyncio.TimerHandle | None = None
        self._has_left = False
        self._moved_count = 0

    async def join(self) -> None:
        """Join the group; raise `PushRefusedError`."""
        for left in reversed(range(JOIN_TRIES)):
            code, why = await self._beat()
            if code is ErrorCode.NONE:
                self._set_timer(self._interval_seconds)
                return
            if code not in _LOADING or not left:
                raise PushRefusedError(self._refusal(code, why))
            await asyncio.sleep(JOIN_PAUSE_SECONDS)

    def _refusal(self, code: ErrorCode, why: str | None) -> Refusal:
        error = f"the share group {self._group} does not accept this subscriber: {why or code.name}"
        return Refusal(error=error, code=code.name, retriable=code.retriable)

    async def _beat(self) -> tuple[ErrorCode, str | None]:
        is_join = self._epoch == JOIN_EPOCH
        answer = await self._send(
            ShareGroupHeartbeatRequest(
                group_id=self._group,
                member_id=self._member_id,
                member_epoch=self._epoch,
                subscribed_topic_names=(self._topic,) if is_join else None,
            )
        )
        if answer.error_code is ErrorCode.NONE:
            self._epoch = answer.member_epoch
            self._interval_seconds = max(0.1, answer.heartbeat_interval_ms / 1000)
        elif answer.error_code in _JOINS_AGAIN:
            self._epoch = JOIN_EPOCH
        return answer.error_code, answer.error_message

    def _set_timer(self, seconds: float) -> None:
        if not self._has_left:
            self._timer = self._loop.call_later(seconds, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._start(self._stay())

    async def _stay(self) -> None:
        code, why = await self._beat()
        if self._has_left:
            return
        self._moved_count = self._moved_count + 1 if code is ErrorCode.NOT_COORDINATOR else 0
        if code is ErrorCode.NONE:
            self._set_timer(self._interval_seconds)
        elif self._moved_count >= MOVED_TRIES:
            self._lost(self._refusal(code, why))
        elif code in _JOINS_AGAIN or code.retriable:
            self._set_timer(min(RETRY_SECONDS, self._interval_seconds))
        else:
            self._lost(self._refusal(code, why))

    def leave(self) -> None:
        """Leave the group."""
        if self._has_left:
            return
        self._has_left = True
        if self._timer is not None:
            self._timer.cancel()
        self._start(self._send_leave())

    async def _send_leave(self) -> None:
        await self._send(
            ShareGroupHeartbeatRequest(
                group_id=self._group, member_id=self._member_id, member_epoch=LEAVE_EPOCH
            )
        )
