"""DescribeCluster: the cluster, its brokers and its controller."""

import pytest

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.broker.handlers.asker import Asker

NOT_ASKED = -2147483648


def ask(
    asker: Asker, version: int, endpoint_type: int = 1, *, operations: bool = False
) -> DescribeClusterResponse:
    request = DescribeClusterRequest(
        include_cluster_authorized_operations=operations, endpoint_type=endpoint_type
    )
    return asker.ask(request, version, DescribeClusterResponse)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_it_says_what_metadata_says(asker: Asker, version: int) -> None:
    answer = ask(asker, version)
    metadata = asker.ask(MetadataRequest(topics=()), 13, MetadataResponse)
    assert answer.error_code == ErrorCode.NONE
    assert answer.error_message is None
    assert answer.cluster_id == metadata.cluster_id
    assert answer.controller_id == metadata.controller_id
    (broker,) = answer.brokers
    assert (broker.broker_id, broker.host, broker.port) == (1, "127.0.0.1", asker.port)
    assert (broker.rack, broker.is_fenced) == (None, False)
    assert answer.endpoint_type == 1


def test_operations_are_told_to_who_asks(asker: Asker) -> None:
    # CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE.
    assert ask(asker, 2, operations=True).cluster_authorized_operations == 0b1_1111_1010_0000
    assert ask(asker, 2).cluster_authorized_operations == NOT_ASKED


def test_this_is_not_a_controller(asker: Asker) -> None:
    answer = ask(asker, 1, endpoint_type=2)
    assert answer.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
    assert answer.error_message
    assert answer.brokers == ()


@pytest.mark.parametrize("endpoint_type", [0, 3, -1])
def test_endpoints_that_nobody_knows(asker: Asker, endpoint_type: int) -> None:
    answer = ask(asker, 1, endpoint_type=endpoint_type)
    assert answer.error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
    assert answer.error_message
    assert answer.brokers == ()
