"""Collects the access rules, names and users of a cluster, for `penstock doctor`. It only reads.

A caller sees rules and users with the permission Describe on the cluster. Brokers hide topics that
a caller may not describe, so names of topics count as known only if no probed one is hidden.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from penstock.cli.doctor.facts import AccessFacts
from penstock.cli.doctor.network import cluster_at
from penstock.client.acl_calls import describe_rules
from penstock.client.cluster import Cluster
from penstock.client.groups.groups import Groups
from penstock.client.security.options import Security
from penstock.client.transport.addresses import Address
from penstock.client.user_calls import describe_users
from penstock.core.errors import BrokerAnswerError, PenstockError
from penstock.protocol.error_codes import ErrorCode
from penstock.security.acls.filters import AclFilter
from penstock.security.acls.values import AclBinding, Operation, ResourceType

PROBED_NAMES_MAX: Final = 500
"""Names of topics in one request: rules have names, and the size of a request is bounded."""


def probe_access(
    bootstrap: Sequence[Address], timeout_seconds: float, security: Security
) -> AccessFacts:
    """Return the rules, names and users that the caller may see."""
    facts = AccessFacts(",".join(map(str, bootstrap)))
    with cluster_at(list(bootstrap), timeout_seconds, security) as cluster:
        users = _users(cluster)
        try:
            rules = cluster.repeat(
                lambda: cluster.anywhere(describe_rules(AclFilter())), repeatable=True
            )
        except PenstockError as error:
            has_authorizer = not (
                isinstance(error, BrokerAnswerError) and error.code == ErrorCode.SECURITY_DISABLED
            )
            return replace(facts, problem=str(error), has_authorizer=has_authorizer, users=users)
        # Values of a newer version have no meaning here.
        known = tuple(rule for rule in rules if not _is_unknown(rule))
        return replace(facts, rules=known, existing=_existing(cluster, known), users=users)


def _is_unknown(rule: AclBinding) -> bool:
    return rule.resource_type == ResourceType.UNKNOWN or rule.operation == Operation.UNKNOWN


def _users(cluster: Cluster) -> frozenset[str] | None:
    try:
        found = cluster.repeat(lambda: cluster.anywhere(describe_users()), repeatable=True)
    except PenstockError:
        return None
    return frozenset(one.user for one in found)


def _existing(cluster: Cluster, rules: Sequence[AclBinding]) -> dict[ResourceType, tuple[str, ...]]:
    """Return the existing names of the types whose names the caller sees completely."""
    existing: dict[ResourceType, tuple[str, ...]] = {}
    types = {rule.resource_type for rule in rules}
    try:
        if ResourceType.GROUP in types:
            listed = Groups(cluster).list_all()
            existing[ResourceType.GROUP] = tuple(one.group_id for one in listed)
        if ResourceType.TOPIC in types and not _has_hidden_topics(cluster, rules):
            topics = cluster.all_topics()
            existing[ResourceType.TOPIC] = tuple(one.name or "" for one in topics)
    except PenstockError:
        pass  # names are compared as far as they are known
    return existing


def _has_hidden_topics(cluster: Cluster, rules: Sequence[AclBinding]) -> bool:
    """Whether the caller may not describe one of the names in the rules."""
    names = {rule.name for rule in rules if rule.resource_type == ResourceType.TOPIC}
    probed = sorted(names)[:PROBED_NAMES_MAX]
    hidden = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return any(topic.error_code == hidden for topic in cluster.topics(probed))
