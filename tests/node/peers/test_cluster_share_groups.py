"""A share group in a cluster: its states, offsets and lag, with several leaders of partitions."""

from penstock.coordinator.shard import Asked
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import alter_share_group_offsets as altering
from penstock.protocol.messages import describe_share_group_offsets as describing
from tests.node.peers.three_brokers import ThreeBrokers, run

TOPIC = "orders"
PARTITIONS = 6
GROUP_TOPIC = "__consumer_offsets"


async def ask(brokers: ThreeBrokers, request: object) -> object:
    """Ask the coordinator of the group, from the broker that it is on."""
    coordinators = brokers.served(1).coordinators
    assert await coordinators.ensure_topic("group") is None
    await brokers.until_served(GROUP_TOPIC)
    broker_id = brokers.coordinator(GROUP_TOPIC, "g")
    coordinators = brokers.served(broker_id).coordinators
    partition = coordinators.partition_of("group", "g")
    answer: list[object] = []
    asked = Asked(request, 1, "", "")  # type: ignore[arg-type]
    coordinators.submit_asked("group", partition, asked).then(answer.append)
    while not answer:
        await brokers.next_turn()
    return answer[0]


def test_offsets_and_lag_over_several_leaders() -> None:
    async def act(brokers: ThreeBrokers) -> None:
        await brokers.create(TOPIC, PARTITIONS)
        image = brokers.topic(TOPIC)
        assert len({one.leader for one in image.partitions}) > 1, "several leaders are needed"
        partitions = tuple(
            altering.AlterShareGroupOffsetsRequestPartition(partition_index=one, start_offset=0)
            for one in range(PARTITIONS)
        )
        topic = altering.AlterShareGroupOffsetsRequestTopic(topic_name=TOPIC, partitions=partitions)
        altered = await ask(
            brokers, altering.AlterShareGroupOffsetsRequest(group_id="g", topics=(topic,))
        )
        assert isinstance(altered, altering.AlterShareGroupOffsetsResponse), altered
        assert altered.error_code is ErrorCode.NONE
        codes = {one.error_code for found in altered.responses for one in found.partitions}
        if codes != {ErrorCode.NONE}:  # the topic of share state may not be led everywhere yet
            await brokers.until_served("__share_group_state")
            altered = await ask(
                brokers, altering.AlterShareGroupOffsetsRequest(group_id="g", topics=(topic,))
            )
            assert isinstance(altered, altering.AlterShareGroupOffsetsResponse)
            assert {one.error_code for found in altered.responses for one in found.partitions} == {
                ErrorCode.NONE
            }
        group = describing.DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=None)
        described = await ask(brokers, describing.DescribeShareGroupOffsetsRequest(groups=(group,)))
        assert isinstance(described, describing.DescribeShareGroupOffsetsResponse), described
        (found,) = described.groups
        assert found.error_code is ErrorCode.NONE
        lags = {
            one.partition_index: (one.error_code, one.start_offset, one.lag)
            for one in found.topics[0].partitions
        }
        assert lags == dict.fromkeys(range(PARTITIONS), (ErrorCode.NONE, 0, 0))

    run(act)
