"""ElectLeaders: every partition is led by the replica that should lead it."""

import pytest

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    TopicPartitions,
)
from tests.broker.handlers.asker import Asker, fresh_name

PREFERRED, UNCLEAN, UNKNOWN = 0, 1, 2


def elect(
    asker: Asker,
    *topics: tuple[str, tuple[int, ...]],
    kind: int = PREFERRED,
    version: int = 2,
    everything: bool = False,
) -> ElectLeadersResponse:
    request = ElectLeadersRequest(
        election_type=kind,
        topic_partitions=None
        if everything
        else tuple(TopicPartitions(topic=name, partitions=indexes) for name, indexes in topics),
        timeout_ms=10_000,
    )
    return asker.ask(request, version, ElectLeadersResponse)


def results_in(answer: ElectLeadersResponse) -> list[tuple[str, PartitionResult]]:
    return [
        (topic.topic, result)
        for topic in answer.replica_election_results
        for result in topic.partition_result
    ]


@pytest.mark.parametrize("kind", [PREFERRED, UNCLEAN])
def test_no_election_is_needed(asker: Asker, kind: int) -> None:
    name = fresh_name()
    asker.create(name, 2)
    answer = elect(asker, (name, (0, 1)), kind=kind)
    assert answer.error_code == ErrorCode.NONE
    assert [(topic, result.partition_id) for topic, result in results_in(answer)] == [
        (name, 0),
        (name, 1),
    ]
    for _, result in results_in(answer):
        assert result.error_code == ErrorCode.ELECTION_NOT_NEEDED
        assert result.error_message == "Leader election not needed for topic partition."


def test_what_does_not_exist(asker: Asker) -> None:
    name = fresh_name()
    asker.create(name)
    answer = elect(asker, ("nobody", (0,)), (name, (7,)))
    told = [(result.error_code, result.error_message) for _, result in results_in(answer)]
    assert told == [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such topic as nobody"),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-7"),
    ]


@pytest.mark.parametrize("kind", [PREFERRED, UNCLEAN])
def test_of_all_partitions_only_those_that_changed_are_told(asker: Asker, kind: int) -> None:
    name = fresh_name()
    asker.create(name)
    answer = elect(asker, kind=kind, everything=True)
    assert answer.error_code == ErrorCode.NONE
    assert name in {topic.topic for topic in answer.replica_election_results}
    assert results_in(answer) == []


def test_a_kind_of_election_that_does_not_exist(asker: Asker) -> None:
    name = fresh_name()
    asker.create(name)
    answer = elect(asker, (name, (0,)), kind=UNKNOWN)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    ((_, result),) = results_in(answer)
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert result.error_message == "Unknown election type 2"
