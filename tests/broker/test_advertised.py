"""Clients learn the addresses of their own listener."""

from penstock.broker.advertised import reachable_brokers
from penstock.broker.peer import Peer
from penstock.cluster.image import BrokerImage, Endpoint, MetadataImage

INSIDE, OUTSIDE = Endpoint("INSIDE", "10.0.0.1", 9092), Endpoint("OUTSIDE", "broker.example", 9093)
BOTH = BrokerImage(1, (INSIDE, OUTSIDE), None, "first", 1)
ONE = BrokerImage(2, (INSIDE,), None, "second", 2)
IMAGE = MetadataImage(brokers={1: BOTH, 2: ONE})


def test_each_listener_has_its_own_addresses() -> None:
    inside = reachable_brokers(IMAGE, Peer("10.0.0.9", listener="INSIDE"))
    assert list(inside) == [(BOTH, INSIDE), (ONE, INSIDE)]


def test_a_broker_without_the_listener_is_left_out() -> None:
    outside = reachable_brokers(IMAGE, Peer("192.0.2.1", listener="OUTSIDE"))
    assert list(outside) == [(BOTH, OUTSIDE)]
    assert list(reachable_brokers(IMAGE, Peer("192.0.2.1", listener="OTHER"))) == []
