"""Creating the rules of the cells on a broker."""

import time
from typing import Final

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from penstock.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from penstock.security.acls.values import (
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from tests.access_matrix.administration_requests import RULE, creation
from tests.access_matrix.grants import Cell
from tests.access_matrix.targets import SECONDS_MAX, SocketConnection

RULES_AT_ONCE: Final = 1_000
EVERY_RULE: Final = DescribeAclsRequest(
    resource_type_filter=ResourceType.ANY,
    resource_name_filter=None,
    pattern_type_filter=PatternType.ANY,
    principal_filter=None,
    host_filter=None,
    operation=Operation.ANY,
    permission_type=Permission.ANY,
)


def rules_of(cells: list[Cell]) -> list[AclBinding]:
    """Return the rules of all cells, and the one that requests are about."""
    return [RULE, *(rule for cell in cells for rule in cell.rules())]


def create_rules(connection: SocketConnection, rules: list[AclBinding]) -> None:
    """Create rules, and wait until the broker applies them."""
    for start in range(0, len(rules), RULES_AT_ONCE):
        creations = tuple(map(creation, rules[start : start + RULES_AT_ONCE]))
        (answer,) = connection.ask([(CreateAclsRequest(creations=creations), 3)])
        assert isinstance(answer, CreateAclsResponse)
        failed = [one for one in answer.results if one.error_code != ErrorCode.NONE]
        assert not failed, failed[0]
    deadline = time.monotonic() + SECONDS_MAX
    while (count := _count(connection)) < len(set(rules)):
        assert time.monotonic() < deadline, f"the broker has {count} of {len(rules)} rules"


def _count(connection: SocketConnection) -> int:
    (answer,) = connection.ask([(EVERY_RULE, 3)])
    assert isinstance(answer, DescribeAclsResponse)
    return sum(len(resource.acls) for resource in answer.resources)
