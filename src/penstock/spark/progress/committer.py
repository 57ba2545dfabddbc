"""`GroupCommitter`: commits the offsets of a query to a real cluster.

Every call is bounded: an unreachable broker delays the publishing thread by some seconds, and never
a query. It is not a member of the group that it commits for.
"""

from collections.abc import Callable, Mapping
from typing import Final

from penstock.client.cluster import Cluster
from penstock.client.groups.groups import Groups
from penstock.client.opening import open_cluster
from penstock.client.transport.options import (
    API_TIMEOUT_MS,
    BOOTSTRAP_SERVERS,
    REQUEST_TIMEOUT_MS,
    parse_client_options,
)
from penstock.core.types import TopicPartition

TIMEOUT_SECONDS: Final = 5.0
"""The timeout of one commit with all retries; a longer one would only delay the next position."""


class GroupCommitter:
    """A committer for one cluster, used by one thread."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._groups = Groups(cluster)

    def cluster_id(self) -> str | None:
        """Return the cluster id that the brokers report; very old brokers report none."""
        return self._cluster.cluster_id() or None

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit the offsets; raise `GroupNotEmptyError` if consumers are members of the group."""
        self._groups.commit(group_id, offsets)

    def close(self) -> None:
        """Close every connection."""
        self._cluster.close()


def committer_opener(
    bootstrap_servers: str, client_options: Mapping[str, str]
) -> Callable[[], GroupCommitter]:
    """Check the options now; return a function that connects when it is called."""
    timeout_ms = str(round(TIMEOUT_SECONDS * 1000))
    options = parse_client_options(
        {
            REQUEST_TIMEOUT_MS: timeout_ms,
            API_TIMEOUT_MS: timeout_ms,
            **client_options,
            BOOTSTRAP_SERVERS: bootstrap_servers,
        }
    )
    # The publisher retries an unreachable broker later, with a newer position.
    return lambda: GroupCommitter(open_cluster(options, repeats_first_contact=False))
