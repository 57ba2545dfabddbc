"""Push in a cluster: a broker serves its own partitions and groups, and names the others."""

import socket
from typing import Literal

import pytest

from penstock.client.push import PushRequestError, open_push
from penstock.core.settings.tree import Settings
from tests.node.peers import three_brokers
from tests.node.peers.three_brokers import IDS, ThreeBrokers, run


def _free_ports() -> dict[int, int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in IDS]
    ports = {one: each.getsockname()[1] for one, each in zip(IDS, held, strict=True)}
    for each in held:
        each.close()
    return ports


@pytest.fixture
def ports(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """Return the push port of each broker of the next cluster."""
    found, plain = _free_ports(), three_brokers.settings

    def settings(broker_id: int) -> Settings:
        edge = plain(broker_id).edge.model_copy(update={"push_port": found[broker_id]})
        return plain(broker_id).model_copy(update={"edge": edge})

    monkeypatch.setattr(three_brokers, "settings", settings)
    return found


def test_a_subscription_names_the_push_addresses_of_other_leaders(ports: dict[int, int]) -> None:
    async def act(brokers: ThreeBrokers) -> None:
        await brokers.servers[1].create_topic("t", partitions=6)
        await brokers.servers[1].create_topic("one", partitions=1)
        leader = brokers.leader("one", 0)
        addresses = {one: f"127.0.0.1:{port}" for one, port in ports.items()}
        received: list[bytes | None] = []
        for broker_id in IDS:
            async with await open_push("127.0.0.1", ports[broker_id]) as client:
                subscription = await client.subscribe("t", start="earliest")
                own = set(subscription.positions)
                assert own == {n for n in range(6) if brokers.leader("t", n) == broker_id}
                assert subscription.elsewhere == {
                    n: brokers.leader("t", n) for n in range(6) if n not in own
                }
                others = {one: at for one, at in addresses.items() if one != broker_id}
                assert subscription.addresses == others
                for partition in sorted(own):
                    await client.publish("t", b"%d" % partition, partition=partition)
                    received.append((await anext(subscription)).value)
                if broker_id == leader:
                    await client.subscribe("one")
                    continue
                with pytest.raises(PushRequestError, match=addresses[leader]) as refused:
                    await client.subscribe("one")
                assert refused.value.code == "NOT_LEADER_OR_FOLLOWER"
                assert refused.value.is_retriable
                with pytest.raises(PushRequestError, match="broker"):
                    await client.subscribe("one", start={0: 0})
        assert sorted(received) == [b"%d" % n for n in range(6)]  # type: ignore[type-var]

    run(act)


@pytest.mark.parametrize("mode", ["fanout", "queue"])
def test_a_group_is_served_by_its_coordinator(
    ports: dict[int, int], mode: Literal["fanout", "queue"]
) -> None:
    async def act(brokers: ThreeBrokers) -> None:
        await brokers.servers[1].create_topic("t", partitions=6)
        await brokers.served(1).coordinators.ensure_topic("group")
        leader = brokers.coordinator("__consumer_offsets", "g")
        for broker_id in IDS:
            async with await open_push("127.0.0.1", ports[broker_id]) as client:
                if broker_id == leader:
                    await client.subscribe("t", group="g", mode=mode)
                    continue
                with pytest.raises(PushRequestError, match=f":{ports[leader]}") as found:
                    await client.subscribe("t", group="g", mode=mode)
                assert found.value.code == "NOT_COORDINATOR"

    run(act)
