"""The brokers of a cluster as the clients of one listener see them (pure)."""

from collections.abc import Iterator

from penstock.broker.peer import Peer
from penstock.cluster.image import BrokerImage, Endpoint, MetadataImage


def reachable_brokers(image: MetadataImage, peer: Peer) -> Iterator[tuple[BrokerImage, Endpoint]]:
    """Yield each broker with its address for this client.

    A broker without the client's listener is left out, as in Kafka: the client could not connect.
    """
    for broker in image.brokers.values():
        at = broker.endpoint(peer.listener)
        if at is not None:
            yield broker, at
