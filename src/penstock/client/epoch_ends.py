"""End offsets of leader epochs in the current logs: one OffsetForLeaderEpoch per leader.

A reader knows the offset that it has read up to, and the epoch of those records. It asks whether
that epoch still reaches this offset. If the epoch ends earlier, the log was truncated and the
records that were read are gone (KIP-320).
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
    """Return the end offset of each epoch, or of an older one; -1 if it is unknown."""
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
    """Request the ends of epochs; each pair is the epoch and the leader's current epoch."""
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
