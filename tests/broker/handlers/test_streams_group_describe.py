"""StreamsGroupDescribe: there is no streams group, and other groups have their own error."""

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)
from penstock.testing import Broker
from tests.broker.handlers.asker import Asker, fresh_name
from tests.broker.handlers.groups import commit, ready


def describe(asker: Asker, *group_ids: str) -> dict[str, DescribedGroup]:
    request = StreamsGroupDescribeRequest(group_ids=group_ids, include_authorized_operations=False)
    answer = asker.ask(request, 0, StreamsGroupDescribeResponse)
    return {group.group_id: group for group in answer.groups}


def test_a_group_that_does_not_exist(asker: Asker) -> None:
    name = fresh_name("group")
    ready(asker, name)
    found = describe(asker, name, "")
    assert found[name].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert found[name].error_message == f"Group {name} not found."
    assert (found[name].topology, found[name].members) == (None, ())
    assert found[""].error_code == ErrorCode.INVALID_GROUP_ID


def test_a_group_of_another_type(asker: Asker) -> None:
    name, topic = fresh_name("group"), fresh_name()
    asker.create(topic)
    ready(asker, name)
    commit(asker, name, {(topic, 0): 0})
    found = describe(asker, name)[name]
    assert found.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert found.error_message == f"Group {name} is not a streams group."


def test_before_anybody_asked_for_a_coordinator() -> None:
    with Broker() as fresh, Asker(fresh.port) as asker:
        assert describe(asker, "g")["g"].error_code == ErrorCode.NOT_COORDINATOR
