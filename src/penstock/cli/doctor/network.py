"""Collects the network facts of `penstock doctor`: a client's path to a cluster, step by step.

For each address it resolves the name, connects and requests the API versions. Then it requests the
cluster's brokers and checks each advertised address in the same way. It only reads.
"""

import socket
import time
from collections.abc import Iterable

from penstock.cli.doctor.facts import AddressFacts, AdvertisedFacts, ClusterFacts
from penstock.client import calls
from penstock.client.cluster import Cluster
from penstock.client.security.options import NO_SECURITY, Security
from penstock.client.transport.addresses import Address
from penstock.client.transport.blocking import connect, reason
from penstock.core.errors import AuthenticationError, PenstockError, TlsHandshakeError
from penstock.core.types import TopicPartition

MAX_TIMESTAMP = -3
"""The ListOffsets timestamp that requests the newest record."""
BROKERS_MAX = 64
"""In a larger cluster only the first ones are checked: their setup is alike."""
_INTERNAL_PARTITIONS_MAX = 50


def probe_address(
    address: Address, timeout_seconds: float, security: Security = NO_SECURITY
) -> AddressFacts:
    """Resolve, connect, log in, and request the versions and the cluster's id."""
    try:
        found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return AddressFacts(str(address), resolve_problem=reason(error))
    resolved = tuple(dict.fromkeys(str(one[4][0]) for one in found))
    try:
        socket.create_connection(address, timeout_seconds).close()
    except OSError as error:
        return AddressFacts(str(address), resolved, connect_problem=reason(error))
    try:
        connection = connect(address, timeout_seconds=timeout_seconds, security=security)
    except PenstockError as error:
        return AddressFacts(
            str(address),
            resolved,
            speak_problem=str(error),
            is_refused=isinstance(error, AuthenticationError | TlsHandshakeError),
            speak_remedy=error.hint,
        )
    try:
        # Requested twice: the first request is slower, because this process builds its codecs.
        begun = time.monotonic()
        connection.negotiate()
        answer_ms = (time.monotonic() - begun) * 1000
        cluster_id = connection.carry(calls.describe_brokers([])).cluster_id
    except PenstockError as error:
        return AddressFacts(
            str(address), resolved, speak_problem=str(error), speak_remedy=error.hint
        )
    finally:
        connection.close()
    return AddressFacts(
        str(address), resolved, speaks_kafka=True, answer_ms=answer_ms, cluster_id=cluster_id
    )


def probe_cluster(
    bootstrap: Iterable[Address], timeout_seconds: float, security: Security = NO_SECURITY
) -> ClusterFacts:
    """Return all facts of the cluster that a client sees."""
    asked = tuple(bootstrap)
    seen = tuple(probe_address(one, timeout_seconds, security) for one in asked)
    good = [at for at, facts in zip(asked, seen, strict=True) if facts.speaks_kafka]
    if not good:
        return ClusterFacts(seen)
    try:
        with cluster_at(good, timeout_seconds, security) as cluster:
            brokers = sorted(cluster.brokers().items())[:BROKERS_MAX]
            cluster_id = cluster.cluster_id()
    except PenstockError as error:
        return ClusterFacts(seen, problem=str(error))
    advertised = tuple(
        AdvertisedFacts(number, probe_address(address, timeout_seconds, security))
        for number, address in brokers
    )
    return ClusterFacts(seen, cluster_id, advertised)


def newest_time_of_broker(
    bootstrap: Iterable[Address], timeout_seconds: float, security: Security = NO_SECURITY
) -> int | None:
    """Return the newest time in the brokers' own records; None without such records.

    Responses contain no time, but brokers add timestamps to the records of internal topics.
    """
    try:
        with cluster_at(list(bootstrap), timeout_seconds, security) as cluster:
            places = [
                TopicPartition(topic.name or "", part.partition_index)
                for topic in cluster.all_topics()
                if topic.is_internal
                for part in topic.partitions
            ][:_INTERNAL_PARTITIONS_MAX]
            if not places:
                return None
            found = cluster.look_up_offsets(
                dict.fromkeys(places, MAX_TIMESTAMP), is_read_committed=False
            )
    except PenstockError:
        return None
    times = [one.timestamp_ms for one in found.values() if one.timestamp_ms >= 0]
    return max(times, default=None)


def cluster_at(addresses: list[Address], timeout_seconds: float, security: Security) -> Cluster:
    """Return the cluster at these addresses; it connects at the first request."""
    return Cluster(
        addresses,
        lambda address: connect(address, timeout_seconds=timeout_seconds, security=security),
        timeout_seconds=timeout_seconds,
    )
