"""Deletion of topics in a cluster of three brokers: every broker removes its replicas."""

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from tests.node.peers.three_brokers import IDS, ThreeBrokers, run, until

TOPICS = ("first", "second")


def test_every_broker_removes_the_replicas_of_deleted_topics() -> None:
    async def body(brokers: ThreeBrokers) -> None:
        for topic in TOPICS:
            await brokers.create(topic, 2)
        request = DeleteTopicsRequest(topic_names=TOPICS, timeout_ms=5_000)
        answer = await brokers.ask(1, request, DeleteTopicsResponse, 5)
        assert [one.error_code for one in answer.responses] == [ErrorCode.NONE] * 2
        served = [brokers.served(broker_id).replicas for broker_id in IDS]
        await until(lambda: all(replicas.find("second", 1) is None for replicas in served))
        # A broker that ended could not serve a topic with the same name.
        await brokers.create("first", 2)

    run(body)
