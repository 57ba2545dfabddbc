"""`PushOffsets`: the committed offsets of groups, for push subscriptions with a group.

Both go through the handlers of Kafka's APIs: a commit is an OffsetCommit of a group without
members, so it has the checks, errors and guarantees of Kafka clients.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from penstock.broker.context import BrokerServices, RequestContext
from penstock.broker.error_mapping import code_of
from penstock.broker.handlers import offset_commit, offset_fetch
from penstock.broker.pieces import settled
from penstock.edge.push.ports import PushRefusedError
from penstock.node.push.push_elsewhere import check_coordinator
from penstock.node.push.push_refusals import refused
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from penstock.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

COMMIT_VERSION: Final = 9
FETCH_OFFSETS_VERSION: Final = 9
"""The last versions that name topics and not their ids."""
LOADING: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.name,
    ErrorCode.COORDINATOR_NOT_AVAILABLE.name,
)
LOADING_TRIES: Final = 20
LOADING_PAUSE_SECONDS: Final = 0.1

ContextOf = Callable[[object, ApiKey, int], RequestContext]


class PushOffsets:
    """Offsets of groups on behalf of push clients."""

    def __init__(self, services: BrokerServices, context_of: ContextOf) -> None:
        self._services = services
        self._context_of = context_of

    async def loaded(
        self, client: object, group: str, topic: str, partitions: list[int]
    ) -> dict[int, int]:
        """Return the committed offsets of a group; wait a moment for a coordinator that loads."""
        error = await self._services.coordinators.ensure_topic("group")
        if error is not None:
            raise refused(code_of(error), f"the offsets of group {group} cannot be read: {error}")
        check_coordinator(self._services, group)
        for left in reversed(range(LOADING_TRIES)):
            try:
                return await self._committed(client, group, topic, partitions)
            except PushRefusedError as refusal:
                if not left or refusal.refusal.code not in LOADING:
                    raise
            await asyncio.sleep(LOADING_PAUSE_SECONDS)
        raise AssertionError("the last try raises")

    async def _committed(
        self, client: object, group: str, topic: str, partitions: list[int]
    ) -> dict[int, int]:
        """Return the committed offsets of a group; partitions without one are missing."""
        context = self._context_of(client, ApiKey.OFFSET_FETCH, FETCH_OFFSETS_VERSION)
        named = OffsetFetchRequestTopics(name=topic, partition_indexes=tuple(partitions))
        asked = OffsetFetchRequest(
            groups=(OffsetFetchRequestGroup(group_id=group, topics=(named,)),), require_stable=True
        )
        (answer,) = (await offset_fetch.handle(asked, context)).groups
        rows = [row for one in answer.topics for row in one.partitions]
        for code in (answer.error_code, *(row.error_code for row in rows)):
            if code is not ErrorCode.NONE:
                raise refused(code, f"the offsets of group {group} cannot be read: {code.name}")
        return {
            row.partition_index: row.committed_offset for row in rows if row.committed_offset >= 0
        }

    async def commit(self, client: object, group: str, topic: str, offsets: dict[int, int]) -> None:
        """Commit offsets of a group."""
        request = OffsetCommitRequest(
            group_id=group,
            member_id="",
            topics=(
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=tuple(
                        OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
                        for index, offset in offsets.items()
                    ),
                ),
            ),
        )
        context = self._context_of(client, ApiKey.OFFSET_COMMIT, COMMIT_VERSION)
        answer = await settled(offset_commit.handle(request, context))
        if not isinstance(answer, OffsetCommitResponse):
            raise refused(ErrorCode.UNKNOWN_SERVER_ERROR, "the commit failed by a defect")
        for one in answer.topics:
            for row in one.partitions:
                if row.error_code is not ErrorCode.NONE:
                    raise refused(
                        row.error_code,
                        f"group {group} cannot commit {topic}-{row.partition_index}: "
                        f"{row.error_code.name}",
                    )
