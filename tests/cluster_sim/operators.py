"""`Operator`: creates the topics of a run, and changes the cluster while it runs, as a person does.

Each change is one request, and its error is ignored: the cluster may be unable to carry it out now.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import TypeVar

from penstock.client import calls
from penstock.client.calls import NewTopic
from penstock.client.transport.call import Call
from penstock.core.errors import PenstockError
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import alter_partition_reassignments as moves
from penstock.protocol.messages import elect_leaders
from tests.cluster_sim.clients import SimulatedClient

Result = TypeVar("Result")


class Operator(SimulatedClient):
    """A person with administration tools."""

    async def create_topic(self, topic: NewTopic) -> ErrorCode:
        """Create a topic; return the code of the answer."""

        async def attempt() -> ErrorCode:
            (result,) = await self.cluster.anywhere(calls.create([topic], 10_000))
            return ErrorCode(result.error_code)

        return await self.cluster.repeat(attempt, repeatable=True)

    async def change_setting(self, topic: str, name: str, value: str) -> None:
        """Change a setting of a topic."""
        await self._try(calls.configure(calls.TOPIC_RESOURCE, topic, {name: value}))

    async def elect_first_replicas(self) -> None:
        """Let the first replica of each partition lead, if it is in sync."""
        await self._try(
            Call(
                elect_leaders.ElectLeadersRequest(topic_partitions=None, timeout_ms=3_000),
                elect_leaders.ElectLeadersResponse,
                lambda answer: answer.error_code,
            )
        )

    async def move(self, at: TopicPartition, replicas: Sequence[int] | None) -> None:
        """Begin to move the replicas of a partition; None cancels a move."""
        wanted = moves.ReassignablePartition(
            partition_index=at.partition, replicas=None if replicas is None else tuple(replicas)
        )
        topic = moves.ReassignableTopic(name=at.topic, partitions=(wanted,))
        await self._try(
            Call(
                moves.AlterPartitionReassignmentsRequest(topics=(topic,), timeout_ms=3_000),
                moves.AlterPartitionReassignmentsResponse,
                lambda answer: answer.error_code,
            )
        )

    async def _try(self, call: Call[Result]) -> None:
        with suppress(PenstockError):
            await self.cluster.anywhere(call)
        # The next request goes to another broker.
        self.cluster._view.forget_topics()
