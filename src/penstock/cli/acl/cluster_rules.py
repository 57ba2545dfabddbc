"""The access rules of a cluster, fetched and created for the commands of `penstock acl`."""

from collections.abc import Sequence
from typing import Final, TypeVar

from penstock.cli.brokers import CommandCluster
from penstock.client.acl_calls import RULES_PER_REQUEST, create_rules, describe_rules
from penstock.client.transport.call import Call
from penstock.core.errors import PenstockError
from penstock.core.quantities import count_text
from penstock.protocol.error_codes import ErrorCode
from penstock.security.acls.filters import AclFilter
from penstock.security.acls.rule_text import rule_text
from penstock.security.acls.values import AclBinding, Permission

ERRORS_SHOWN_MAX: Final = 10
_WHOLE_REQUEST: Final = (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.SECURITY_DISABLED)
"""Errors that each rule of a request has."""


Result = TypeVar("Result")


class RuleError(PenstockError):
    """Some rules were rejected."""


def found_rules(cluster: CommandCluster, filters: Sequence[AclFilter]) -> list[AclBinding]:
    """Return the rules that match one of the filters, sorted."""
    found: set[AclBinding] = set()
    for condition in filters:
        found.update(_ask(cluster, describe_rules(condition)))
    return sorted(found)


def create_all(cluster: CommandCluster, rules: Sequence[AclBinding]) -> None:
    """Create rules; raise the errors of the rejected ones."""
    rejected: list[str] = []
    # Deny rules first: no rule allows what a later one of the same command denies.
    ordered = sorted(rules, key=lambda rule: rule.permission != Permission.DENY)
    for start in range(0, len(ordered), RULES_PER_REQUEST):
        few = ordered[start : start + RULES_PER_REQUEST]
        # Creating twice has the same result as once.
        outcomes = _ask(cluster, create_rules(few))
        for rule, error in zip(few, outcomes, strict=True):
            if error is None:
                continue
            if error.code in _WHOLE_REQUEST:
                raise error
            rejected.append(f"{rule_text(rule)}: {error}")
    if rejected:
        shown = "\n".join(f"  {line}" for line in rejected[:ERRORS_SHOWN_MAX])
        raise RuleError(f"{len(rejected)} of {count_text(len(rules), 'rule')} rejected:\n{shown}")


def _ask(cluster: CommandCluster, call: Call[Result]) -> Result:
    return cluster.repeat(lambda: cluster.anywhere(call), repeatable=True)
