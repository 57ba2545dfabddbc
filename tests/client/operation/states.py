"""States of clusters for tests: brokers, and partitions by their replicas."""

from collections.abc import Mapping, Sequence

from hypothesis import strategies as st

from penstock.client.operation.cluster_state import (
    BrokerFacts,
    BrokerMode,
    ClusterState,
    PartitionFacts,
)
from penstock.core.types import TopicPartition


def partition(
    number: int, replicas: Sequence[int], in_sync: Sequence[int] | None = None, **others: object
) -> PartitionFacts:
    """Return a partition of the topic `t`; all replicas are in sync, and the first one leads."""
    values: dict[str, object] = {
        "at": TopicPartition("t", number),
        "replicas": tuple(replicas),
        "in_sync": tuple(replicas if in_sync is None else in_sync),
        "leader": replicas[0],
        **others,
    }
    return PartitionFacts(**values)  # type: ignore[arg-type]


def brokers(
    *ids: int, racks: Mapping[int, str] | None = None, **modes: BrokerMode
) -> dict[int, BrokerFacts]:
    """Return brokers by id; `b3=BrokerMode.DOWN` sets the mode of broker 3."""
    return {
        one: BrokerFacts(
            id=one,
            rack=(racks or {}).get(one),
            mode=modes.get(f"b{one}", BrokerMode.RUNNING),
        )
        for one in ids
    }


def cluster(
    facts: Mapping[int, BrokerFacts], *partitions: PartitionFacts, controller_id: int = -1
) -> ClusterState:
    """Return the state of a cluster."""
    return ClusterState(brokers=facts, partitions=partitions, controller_id=controller_id)


@st.composite
def states(draw: st.DrawFn) -> ClusterState:
    """Draw a cluster of up to six brokers in up to three racks, with skewed replicas and sizes."""
    ids = range(1, draw(st.integers(2, 6)) + 1)
    racks = draw(st.lists(st.sampled_from(["a", "b", "c", None]), min_size=6, max_size=6))
    modes = draw(
        st.lists(
            st.sampled_from([*[BrokerMode.RUNNING] * 4, BrokerMode.DRAINED, BrokerMode.DOWN]),
            min_size=6,
            max_size=6,
        )
    )
    known = {one: BrokerFacts(id=one, rack=racks[one - 1], mode=modes[one - 1]) for one in ids}
    found = []
    for number in range(draw(st.integers(0, 14))):
        factor = draw(st.integers(1, min(3, len(ids))))
        # The first brokers are drawn more often: the cluster is skewed.
        chosen = draw(
            st.lists(
                st.sampled_from([*ids, *[one for one in ids if one <= 3]]),
                min_size=factor,
                max_size=factor,
                unique=True,
            )
        )
        in_sync = chosen if draw(st.integers(0, 5)) else chosen[:1]
        size = draw(st.sampled_from([0, 1, 10, 100, 1_000, 7_777]))
        found.append(partition(number, chosen, in_sync, size_bytes=size))
    return cluster(known, *found)
