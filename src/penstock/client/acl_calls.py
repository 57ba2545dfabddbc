"""Calls about access rules as values: plain values in, a `Call` out, as in `client.calls`.

Each rule of a creation and each filter of a deletion has its own outcome, so their errors are
values. An error of a whole request is raised. Nothing is retried here.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.client.transport.call import Call, raise_error
from penstock.core.errors import BrokerAnswerError
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import create_acls, delete_acls, describe_acls
from penstock.security.acls.filters import AclFilter, read_binding
from penstock.security.acls.values import AclBinding

RULES_PER_REQUEST: Final = 1_000
"""Rules or filters in one request. A broker bounds the size of a request; 2 MiB are Penstock's."""


class DeletedRule(NamedTuple):
    """A rule that a filter matched."""

    rule: AclBinding
    error: BrokerAnswerError | None
    """Why it is still in force; None if it is deleted."""


def create_rules(rules: Sequence[AclBinding]) -> Call[list[BrokerAnswerError | None]]:
    """Create rules; return one outcome for each. A rule that exists already is a success."""
    request = create_acls.CreateAclsRequest(
        creations=tuple(
            create_acls.AclCreation(
                resource_type=rule.resource_type,
                resource_name=rule.name,
                resource_pattern_type=rule.pattern_type,
                principal=rule.principal,
                host=rule.host,
                operation=rule.operation,
                permission_type=rule.permission,
            )
            for rule in rules
        )
    )

    def read(answer: create_acls.CreateAclsResponse) -> list[BrokerAnswerError | None]:
        return [_error(one.error_code, one.error_message) for one in answer.results]

    return Call(request, create_acls.CreateAclsResponse, read)


def describe_rules(condition: AclFilter) -> Call[list[AclBinding]]:
    """Return the rules that match a filter, sorted."""
    request = describe_acls.DescribeAclsRequest(
        resource_type_filter=condition.resource_type,
        resource_name_filter=condition.name,
        pattern_type_filter=condition.pattern_type,
        principal_filter=condition.principal,
        host_filter=condition.host,
        operation=condition.operation,
        permission_type=condition.permission,
    )

    def read(answer: describe_acls.DescribeAclsResponse) -> list[AclBinding]:
        raise_error(answer.error_code, answer.error_message, "access rules")
        return sorted(
            read_binding(
                resource_type=resource.resource_type,
                name=resource.resource_name,
                pattern_type=resource.pattern_type,
                principal=one.principal,
                host=one.host,
                operation=one.operation,
                permission=one.permission_type,
            )
            for resource in answer.resources
            for one in resource.acls
        )

    return Call(request, describe_acls.DescribeAclsResponse, read)


def delete_rules(conditions: Sequence[AclFilter]) -> Call[list[DeletedRule]]:
    """Delete the rules that match one of the filters; return them, sorted, each once.

    Raises the error of the first filter that has one.
    """
    request = delete_acls.DeleteAclsRequest(
        filters=tuple(
            delete_acls.DeleteAclsFilter(
                resource_type_filter=condition.resource_type,
                resource_name_filter=condition.name,
                pattern_type_filter=condition.pattern_type,
                principal_filter=condition.principal,
                host_filter=condition.host,
                operation=condition.operation,
                permission_type=condition.permission,
            )
            for condition in conditions
        )
    )

    def read(answer: delete_acls.DeleteAclsResponse) -> list[DeletedRule]:
        found: dict[AclBinding, BrokerAnswerError | None] = {}
        for result in answer.filter_results:
            raise_error(result.error_code, result.error_message, "access rules")
            for one in result.matching_acls:
                rule = read_binding(
                    resource_type=one.resource_type,
                    name=one.resource_name,
                    pattern_type=one.pattern_type,
                    principal=one.principal,
                    host=one.host,
                    operation=one.operation,
                    permission=one.permission_type,
                )
                found[rule] = _error(one.error_code, one.error_message)
        return [DeletedRule(rule, found[rule]) for rule in sorted(found)]

    return Call(request, delete_acls.DeleteAclsResponse, read)


def _error(code: ErrorCode, message: str | None) -> BrokerAnswerError | None:
    if code == ErrorCode.NONE:
        return None
    return BrokerAnswerError(code.value, code.name, message or "")
