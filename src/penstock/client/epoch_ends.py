"""Where leader epochs end in the logs of now: one OffsetForLeaderEpoch for each leader.

A reader that has read up to an offset, in records of some epoch, asks whether that epoch still
reaches there. If it ends earlier, the log was truncated and what was read is gone (KIP-320).
"""

from collections.abc import Mapping

from penstock.client.calls import NO_REPLICA, by_topic
from penstock.client.cluster import Cluster
from penstock.client.transport.call import Call, raise_error
from penstock.core.types import TopicPartition
from penstock.protocol.messages import offset_for_leader_epoch


def find_epoch_ends(
    cluster: Cluster, epochs: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The offset behind the last record of each epoch or an older one; -1 if it is not known."""
    found: dict[TopicPartition, int] = {}

    def attempt() -> None:
        wanted = [at for at in epochs if at not in found]
        leaders = cluster.leaders(wanted)
        asked = {
            address: ask_epoch_ends(
                {at: (epochs[at], leaders[at].leader_epoch) for at in partitions}
            )
            for address, partitions in cluster.by_leader(wanted).items()
        }
        for answers in cluster.at_each(asked):
            for at, answer in answers.items():
                raise_error(answer.error_code, None, str(at))
                found[at] = answer.end_offset

    cluster.repeat(attempt, repeatable=True)
    return found


def ask_epoch_ends(
    epochs: Mapping[TopicPartition, tuple[int, int]],
) -> Call[dict[TopicPartition, offset_for_leader_epoch.EpochEndOffset]]:
    """Where epochs end; with each the epoch that the leader is known to have now."""
    request = offset_for_leader_epoch.OffsetForLeaderEpochRequest(
        replica_id=NO_REPLICA,
        topics=tuple(
            offset_for_leader_epoch.OffsetForLeaderTopic(
                topic=topic,
                partitions=tuple(
                    offset_for_leader_epoch.OffsetForLeaderPartition(
                        partition=at.partition,
                        leader_epoch=epochs[at][0],
                        current_leader_epoch=epochs[at][1],
                    )
                    for at in partitions
                ),
            )
            for topic, partitions in by_topic(epochs).items()
        ),
    )

    def read(
        answer: offset_for_leader_epoch.OffsetForLeaderEpochResponse,
    ) -> dict[TopicPartition, offset_for_leader_epoch.EpochEndOffset]:
        return {
            TopicPartition(topic.topic, partition.partition): partition
            for topic in answer.topics
            for partition in topic.partitions
        }

    return Call(request, offset_for_leader_epoch.OffsetForLeaderEpochResponse, read)
