"""A broker whose share groups are switched off: feature level 0, and UNSUPPORTED_VERSION."""

from collections.abc import Iterator

import pytest

from penstock.core.settings.tree import settings_of
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import (
    alter_share_group_offsets,
    api_versions,
    delete_share_group_offsets,
    describe_share_group_offsets,
    share_group_describe,
    share_group_heartbeat,
)
from penstock.testing import Broker
from tests.broker.handlers.asker import Asker
from tests.broker.handlers.sharing import Member

UNSUPPORTED = ErrorCode.UNSUPPORTED_VERSION


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {"listener.port": 0, "node.storage": "memory", "groups.share_enabled": False}
    with Broker(settings_of(settings)) as running:
        yield running


def test_share_groups_are_not_offered(penstock: Asker) -> None:
    request = api_versions.ApiVersionsRequest(
        client_software_name="test", client_software_version="1"
    )
    answer = penstock.ask(request, 4, api_versions.ApiVersionsResponse)
    levels = {one.name: one.max_version_level for one in answer.finalized_features}
    assert "share.version" not in levels
    assert levels["group.version"] == 1


def test_requests_of_members_are_refused(penstock: Asker) -> None:
    member = Member(penstock, "g")
    assert member.fetch(None, epoch=0).error_code == UNSUPPORTED
    assert member.acknowledge(None, epoch=1).error_code == UNSUPPORTED
    beat = share_group_heartbeat.ShareGroupHeartbeatRequest(
        group_id="g", member_id=member.id, member_epoch=0, subscribed_topic_names=("t",)
    )
    answer = penstock.ask(beat, 1, share_group_heartbeat.ShareGroupHeartbeatResponse)
    assert answer.error_code == UNSUPPORTED


def test_requests_of_tools_are_refused(penstock: Asker) -> None:
    described = penstock.ask(
        share_group_describe.ShareGroupDescribeRequest(
            group_ids=("g", "h"), include_authorized_operations=False
        ),
        1,
        share_group_describe.ShareGroupDescribeResponse,
    )
    assert [one.error_code for one in described.groups] == [UNSUPPORTED] * 2
    offsets = penstock.ask(
        describe_share_group_offsets.DescribeShareGroupOffsetsRequest(
            groups=(
                describe_share_group_offsets.DescribeShareGroupOffsetsRequestGroup(
                    group_id="g", topics=None
                ),
            )
        ),
        1,
        describe_share_group_offsets.DescribeShareGroupOffsetsResponse,
    )
    assert [one.error_code for one in offsets.groups] == [UNSUPPORTED]
    altered = penstock.ask(
        alter_share_group_offsets.AlterShareGroupOffsetsRequest(group_id="g", topics=()),
        0,
        alter_share_group_offsets.AlterShareGroupOffsetsResponse,
    )
    assert altered.error_code == UNSUPPORTED
    deleted = penstock.ask(
        delete_share_group_offsets.DeleteShareGroupOffsetsRequest(group_id="g", topics=()),
        0,
        delete_share_group_offsets.DeleteShareGroupOffsetsResponse,
    )
    assert deleted.error_code == UNSUPPORTED
