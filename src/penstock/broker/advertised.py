"""The brokers of a cluster as the clients of one listener see them, and the controller (pure)."""

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


def controller_id(image: MetadataImage, node_id: int) -> int:
    """Return the broker that controls the cluster.

    While there is none, it is the broker that was asked: each broker carries out administration.
    """
    controller = image.controller
    if controller is None or controller.broker_id not in image.brokers:
        return node_id
    return controller.broker_id
