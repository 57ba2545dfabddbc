"""Calls of a member of a share group, for tests of ShareFetch and ShareAcknowledge."""

import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from uuid import UUID, uuid4

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import (
    find_coordinator,
    incremental_alter_configs,
    share_acknowledge,
    share_fetch,
    share_group_heartbeat,
)
from tests.broker.handlers.asker import SECONDS_MAX, Asker

GROUP = 32
"""The resource type of groups in configuration requests."""


class Got(NamedTuple):
    """Acquired records."""

    first: int
    last: int
    delivery_count: int


class Member:
    """One member of a share group, on one connection."""

    def __init__(self, asker: Asker, group: str, member_id: str | None = None) -> None:
        self.asker = asker
        self.group = group
        self.id = member_id or str(uuid4())
        self.epoch = 0

    def set(self, **settings: str) -> None:
        """Change settings of the group; a name has underscores for dots."""
        request = incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=(
                incremental_alter_configs.AlterConfigsResource(
                    resource_type=GROUP,
                    resource_name=self.group,
                    configs=tuple(
                        incremental_alter_configs.AlterableConfig(
                            name=name.replace("_", "."), config_operation=0, value=value
                        )
                        for name, value in settings.items()
                    ),
                ),
            ),
            validate_only=False,
        )
        answer = self.asker.ask(
            request, 1, incremental_alter_configs.IncrementalAlterConfigsResponse
        )
        assert [one.error_code for one in answer.responses] == [ErrorCode.NONE]

    def join(self, *topics: str, partitions: int = 1) -> None:
        """Join the group, and wait until the partitions are assigned."""
        lookup = find_coordinator.FindCoordinatorRequest(key_type=0, coordinator_keys=(self.group,))
        self.asker.ask(lookup, 6, find_coordinator.FindCoordinatorResponse)
        epoch, assigned = 0, 0
        deadline = time.monotonic() + SECONDS_MAX
        while assigned < partitions * len(topics):
            assert time.monotonic() < deadline, "no partitions were assigned"
            request = share_group_heartbeat.ShareGroupHeartbeatRequest(
                group_id=self.group,
                member_id=self.id,
                member_epoch=epoch,
                subscribed_topic_names=topics if epoch == 0 else None,
            )
            answer = self.asker.ask(request, 1, share_group_heartbeat.ShareGroupHeartbeatResponse)
            assert answer.error_code in (
                ErrorCode.NONE,
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                ErrorCode.NOT_COORDINATOR,
            ), answer
            if answer.error_code == ErrorCode.NONE:
                epoch = answer.member_epoch
                found = answer.assignment
                if found is not None:
                    assigned = sum(len(one.partitions) for one in found.topic_partitions)
            time.sleep(0.02)

    def fetch(
        self,
        topic_id: UUID | None,
        *partitions: int,
        epoch: int | None = None,
        wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = 10_000_000,
        max_records: int = 500,
        batch_size: int = 500,
        mode: int = 0,
        renews: bool = False,
        acknowledges: Sequence[tuple[int, int, tuple[int, ...]]] = (),
        forgets: Iterable[int] = (),
        version: int = 2,
    ) -> share_fetch.ShareFetchResponse:
        """Fetch with the next epoch, or the one given; acknowledgements are for partition 0."""
        batches = tuple(
            share_fetch.AcknowledgementBatch(first_offset=a, last_offset=b, acknowledge_types=types)
            for a, b, types in acknowledges
        )
        named = tuple(partitions) or ((0,) if acknowledges else ())
        topics = (
            share_fetch.FetchTopic(
                topic_id=topic_id,
                partitions=tuple(
                    share_fetch.FetchPartition(
                        partition_index=one, acknowledgement_batches=batches if one == 0 else ()
                    )
                    for one in named
                ),
            ),
        )
        forgotten = tuple(forgets)
        request = share_fetch.ShareFetchRequest(
            group_id=self.group,
            member_id=self.id,
            share_session_epoch=self.epoch if epoch is None else epoch,
            max_wait_ms=wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            max_records=max_records,
            batch_size=batch_size,
            share_acquire_mode=mode,
            is_renew_ack=renews,
            topics=topics if named else (),
            forgotten_topics_data=(
                (share_fetch.ForgottenTopic(topic_id=topic_id, partitions=forgotten),)
                if forgotten
                else ()
            ),
        )
        answer = self.asker.ask(request, version, share_fetch.ShareFetchResponse)
        if epoch is None and answer.error_code == ErrorCode.NONE:
            self.epoch += 1
        return answer

    def send_fetch(self, wait_ms: int, min_bytes: int = 1) -> None:
        """Send a fetch of the session's partitions; its answer may wait."""
        request = share_fetch.ShareFetchRequest(
            group_id=self.group,
            member_id=self.id,
            share_session_epoch=self.epoch,
            max_wait_ms=wait_ms,
            min_bytes=min_bytes,
            max_records=500,
            batch_size=500,
            topics=(),
            forgotten_topics_data=(),
        )
        self.asker.send(request, 2)
        self.epoch += 1

    def receive_fetch(self) -> share_fetch.ShareFetchResponse:
        """Return the answer to `send_fetch`."""
        return self.asker.receive(share_fetch.ShareFetchResponse)

    def fetch_until(self, topic_id: UUID | None, *partitions: int, **wishes: int) -> list[Got]:
        """Fetch until there are records; return the acquired ranges."""
        deadline = time.monotonic() + SECONDS_MAX
        while time.monotonic() < deadline:
            got = acquired(self.fetch(topic_id, *partitions, **wishes))  # type: ignore[arg-type]
            if got:
                return got
        raise AssertionError("no records were acquired")

    def acknowledge(
        self,
        topic_id: UUID | None,
        *batches: tuple[int, int, tuple[int, ...]],
        epoch: int | None = None,
        partition: int = 0,
        renews: bool = False,
        version: int = 2,
    ) -> share_acknowledge.ShareAcknowledgeResponse:
        """Acknowledge without a fetch."""
        request = share_acknowledge.ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.id,
            share_session_epoch=self.epoch if epoch is None else epoch,
            is_renew_ack=renews,
            topics=(
                share_acknowledge.AcknowledgeTopic(
                    topic_id=topic_id,
                    partitions=(
                        share_acknowledge.AcknowledgePartition(
                            partition_index=partition,
                            acknowledgement_batches=tuple(
                                share_acknowledge.AcknowledgementBatch(
                                    first_offset=a, last_offset=b, acknowledge_types=types
                                )
                                for a, b, types in batches
                            ),
                        ),
                    ),
                ),
            )
            if batches
            else (),
        )
        answer = self.asker.ask(request, version, share_acknowledge.ShareAcknowledgeResponse)
        if epoch is None and answer.error_code == ErrorCode.NONE:
            self.epoch += 1
        return answer

    def close(self) -> ErrorCode:
        """Close the session."""
        return self.acknowledge(None, epoch=-1).error_code


def acquired(answer: share_fetch.ShareFetchResponse) -> list[Got]:
    """Return the acquired ranges of an answer."""
    assert answer.error_code == ErrorCode.NONE, answer
    return [
        Got(one.first_offset, one.last_offset, one.delivery_count)
        for topic in answer.responses
        for partition in topic.partitions
        for one in partition.acquired_records
    ]


def acknowledge_codes(answer: share_acknowledge.ShareAcknowledgeResponse) -> list[ErrorCode]:
    """Return the code of each partition."""
    return [one.error_code for topic in answer.responses for one in topic.partitions]
