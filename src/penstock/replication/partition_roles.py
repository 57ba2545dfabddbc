"""The role of a broker in a partition, read from the metadata. Pure.

A broker leads only with the registration that was elected: after a restart, or after its session
was lost, the same broker id does not lead until a controller has elected it again.
"""

from typing import NamedTuple

from penstock.cluster.elections import NO_LEADER
from penstock.cluster.image import PartitionImage


class RoleInEpoch(NamedTuple):
    """The part of this broker in one leader epoch."""

    is_leader: bool
    leader_id: int
    """The leader to fetch from; -1 for none, and for the leader itself."""
    leader_epoch: int


def role_in(state: PartitionImage, broker_id: int, broker_epoch: int) -> RoleInEpoch:
    """Return the role of a broker with this registration; epoch 0 is no registration."""
    epoch = state.leader_epoch
    if state.leader == broker_id:
        is_leader = broker_epoch > 0 and state.broker_epoch == broker_epoch
        return RoleInEpoch(is_leader, NO_LEADER, epoch)
    return RoleInEpoch(is_leader=False, leader_id=state.leader, leader_epoch=epoch)


def lacks_committed(state: PartitionImage, broker_id: int) -> bool:
    """Return whether the leader may lack records that this follower holds for committed.

    The leader was elected uncleanly, and has not recovered yet; or it has, and this follower came
    later: the state names it neither in sync nor eligible. No acknowledged record depends on such a
    replica. After a clean election its committed records are the leader's too, so none is cut.
    """
    named = (*state.isr, *[one.broker_id for one in state.elr])
    return state.is_recovering or broker_id not in named
