"""The lag of groups of any type, from the answers of a cluster.

One request fetches the end offsets of all partitions of all groups. Several answers are not one
moment: records may arrive during the requests. `groups.group_lag` has the rows.
"""

from collections.abc import Sequence

from penstock.client.cluster import Cluster
from penstock.client.groups.group_lag import LagRow, lag_rows, partitions_of, share_rows
from penstock.client.groups.groups import SHARE, GroupDescription, Groups, end_offsets


def lag_of(
    cluster: Cluster, groups: Groups, found: Sequence[GroupDescription]
) -> dict[str, list[LagRow]]:
    """Return the rows of each group."""
    shares = {
        one.group_id: groups.share_offsets(one.group_id) for one in found if one.group_type == SHARE
    }
    committed = {
        one.group_id: groups.committed(one.group_id) for one in found if one.group_id not in shares
    }
    wanted = {at for offsets in shares.values() for at in offsets}
    for one in found:
        wanted.update(partitions_of(one.members, committed.get(one.group_id, {})))
    ends = end_offsets(cluster, wanted)
    return {
        one.group_id: share_rows(one.members, shares[one.group_id], ends)
        if one.group_id in shares
        else lag_rows(one.members, committed[one.group_id], ends)
        for one in found
    }
