"""Verdicts on brokers whose process is gone: who judges, how many, and under which compares."""

from types import MappingProxyType

from penstock.cluster.image import (
    BrokerImage,
    BrokerState,
    ControllerImage,
    Endpoint,
    MetadataImage,
    NodeImage,
)
from penstock.cluster.link.verdicts import declare_gone, judge_of, may_judge
from penstock.core.types import PLAINTEXT
from tests.cluster.shared_store import Cluster, run_cluster, until


def image(
    *present: int,
    known: tuple[int, ...] = (1, 2, 3),
    controller: int | None = 2,
    starting: tuple[int, ...] = (),
) -> MetadataImage:
    brokers = {}
    for broker_id in present:
        state = BrokerState.STARTING if broker_id in starting else BrokerState.RUNNING
        endpoint = Endpoint(PLAINTEXT, "localhost", 9092)
        brokers[broker_id] = BrokerImage(broker_id, (endpoint,), None, "d", 10, state)
    return MetadataImage(
        brokers=MappingProxyType(brokers),
        nodes=MappingProxyType({one: NodeImage("d", 1) for one in known}),
        controller=None if controller is None else ControllerImage(controller, 10, 20),
    )


def test_the_controller_judges_and_the_lowest_broker_judges_it() -> None:
    assert judge_of(image(1, 2, 3), 1) == 2
    assert judge_of(image(1, 2, 3), 3) == 2
    assert judge_of(image(1, 2, 3), 2) == 1
    assert judge_of(image(1, 2, 3, starting=(1,)), 2) == 3
    assert judge_of(image(1, 3, controller=None), 1) == 3
    assert judge_of(image(2), 2) is None


def test_no_verdict_takes_more_than_a_third_of_the_brokers() -> None:
    assert may_judge(image(1, 2, 3), 1)
    assert not may_judge(image(1, 2), 1), "one of three is absent"
    assert may_judge(image(1, 2, known=(1, 2)), 1)
    six = tuple(range(1, 7))
    assert may_judge(image(*six[1:], known=six), 3)
    assert not may_judge(image(*six[2:], known=six), 3)


def test_a_judged_controller_is_replaced_and_registers_again() -> None:
    async def body(cluster: Cluster) -> None:
        await cluster.three()
        before = await cluster.settle()
        assert before.controller is not None
        gone = before.controller.broker_id
        judge = judge_of(before, gone)
        assert judge is not None
        epoch = before.brokers[gone].epoch
        assert await declare_gone(cluster.services[judge], gone, epoch)
        await until(lambda: cluster.services[judge].image.controller is not None)
        after = cluster.services[judge].image
        assert after.controller is not None
        assert after.controller.revision > before.controller.revision
        # The process was alive: it registers again, with another epoch.
        await until(lambda: gone in cluster.services[judge].image.brokers)
        assert cluster.services[judge].image.brokers[gone].epoch > epoch

    run_cluster(body)


def test_a_verdict_on_an_earlier_registration_changes_nothing() -> None:
    async def body(cluster: Cluster) -> None:
        await cluster.three()
        before = await cluster.settle()
        assert not await declare_gone(cluster.services[1], 3, before.brokers[3].epoch - 1)
        assert not await declare_gone(cluster.services[1], 9, 1)
        assert (await cluster.settle()).brokers == before.brokers

    run_cluster(body)
