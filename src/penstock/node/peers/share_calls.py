"""`ShareCalls`: requests for share state, sent to the share coordinators on other brokers.

The requests of one type for one broker go out in the order of their calls, one message at a time,
so that a leader's changes arrive in order. Waiting requests share the next message: one for each
group, because a message names one group. A failure is returned as a value. Nothing is
retried here, and which broker coordinates a share-partition is NOT known here.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from penstock.client.transport.call import Call
from penstock.coordinator.shares.share_messages import StateRequest, StateResponse
from penstock.core.errors import ClientError, PenstockError
from penstock.node.peers.peer_batches import PeerBatches
from penstock.node.peers.peer_connections import PeerConnections
from penstock.node.peers.peer_limits import SHARE_GROUPS_MAX, SHARE_STATES_MAX
from penstock.protocol.messages.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
)
from penstock.protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
)
from penstock.protocol.messages.read_share_group_state import (
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
)
from penstock.protocol.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
)
from penstock.protocol.messages.write_share_group_state import (
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
)

_RESPONSES: Final[dict[type, type]] = {
    InitializeShareGroupStateRequest: InitializeShareGroupStateResponse,
    ReadShareGroupStateRequest: ReadShareGroupStateResponse,
    WriteShareGroupStateRequest: WriteShareGroupStateResponse,
    DeleteShareGroupStateRequest: DeleteShareGroupStateResponse,
    ReadShareGroupStateSummaryRequest: ReadShareGroupStateSummaryResponse,
}


class ShareCalls:
    """The calls for share state to all brokers."""

    def __init__(self, connections: PeerConnections) -> None:
        self._connections = connections
        self._batches = {
            request_class: PeerBatches[Any, Any](
                self._send, items_max=SHARE_STATES_MAX, slot_count=1
            )
            for request_class in _RESPONSES
        }

    async def send(self, broker_id: int, request: StateRequest) -> StateResponse | PenstockError:
        """Send a request for one share-partition; return its answer."""
        answer: StateResponse | PenstockError
        answer = await self._batches[type(request)].submit(broker_id, request)
        return answer

    async def stop(self) -> None:
        """Abandon what waits."""
        for batches in self._batches.values():
            await batches.stop()

    async def _send(self, broker_id: int, _slot: int, asked: Sequence[Any]) -> Sequence[Any]:
        """Send requests of one type: one message for each group."""
        by_group: dict[str, list[int]] = {}
        for position, request in enumerate(asked):
            by_group.setdefault(request.group_id, []).append(position)
        groups = list(by_group.values())
        found: list[Any] = [None] * len(asked)
        for start in range(0, len(groups), SHARE_GROUPS_MAX):
            few = groups[start : start + SHARE_GROUPS_MAX]
            answers = await asyncio.gather(
                *(self._send_group(broker_id, [asked[at] for at in places]) for places in few)
            )
            for places, results in zip(few, answers, strict=True):
                for at, result in zip(places, results, strict=True):
                    found[at] = result
        return found

    async def _send_group(self, broker_id: int, asked: Sequence[Any]) -> Sequence[Any]:
        """Send the requests of one group as one; the error of the message is that of each."""
        request_class = type(asked[0])
        response_class = _RESPONSES[request_class]
        whole = request_class(
            group_id=asked[0].group_id, topics=tuple(one.topics[0] for one in asked)
        )
        call = Call(whole, response_class, _same, version_min=request_class.VERSIONS[1])
        lane = f"share-{request_class.API_KEY.name}"
        try:
            answer = await self._connections.call(broker_id, call, lane)
        except PenstockError as error:
            return [error] * len(asked)
        if len(answer.results) != len(asked):
            return [
                ClientError(
                    f"broker {broker_id} answered {len(answer.results)} of {len(asked)} requests "
                    "for share state"
                )
            ] * len(asked)
        return [response_class(results=(result,)) for result in answer.results]


def _same(answer: Any) -> Any:  # noqa: ANN401 (responses of several messages)
    return answer
