"""Decisions about access rules: rules to create, and rules that filters delete. Pure.

The input is an image and a request, the output one outcome for each rule or filter and the writes.
The checks and their wording are Kafka's. On top of Kafka's checks, the number of rules and the
length of their texts are bounded, because all rules are in the memory of each broker.

- A rule that exists already is not written again; its creation succeeds, as in Kafka.
- New rules are written with DENY rules first. So no rule is in force while a DENY of the same
  request is not, and a crash in between leaves fewer permissions and not more.
- Deletions are atomic: a few rules are deleted by one transaction. More than a transaction can
  have are named by one key, a removal, which takes them out of force at once; `sweep_writes`
  deletes their keys afterwards, also after a crash.

It does NOT know rules of a file, and does NOT decide about access (`security.acls.authorizer`).
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from penstock.cluster import values
from penstock.cluster.controller import GuardedWrites
from penstock.cluster.image import MetadataImage
from penstock.cluster.keys import Keys
from penstock.cluster.stores.port import Compare, Delete, Operation, Put
from penstock.core.errors import InvalidRequestError, PenstockError, PolicyViolationError
from penstock.core.limits import STORE_OPERATIONS_MAX
from penstock.core.security_limits import ACL_SCANS_PER_REQUEST_MAX, ACL_TEXT_BYTES_MAX, ACLS_MAX
from penstock.security.acls.filters import (
    CHANGED_RULES_MAX,
    TOO_MANY_DELETED,
    AclFilter,
    creation_problem,
    filter_problem,
)
from penstock.security.acls.values import (
    AclBinding,
    PatternType,
    Permission,
    ResourceType,
)
from penstock.security.acls.values import Operation as AclOperation

_RULES_AT_ONCE: Final = 500
"""Rules compared with a filter, or checked, before other work gets a turn: 1 ms."""


class CreationDecision(NamedTuple):
    """The outcome of each rule to create, and the rules to write."""

    outcomes: tuple[PenstockError | None, ...]
    new: Mapping[UUID, AclBinding]


def decide_creations(
    image: MetadataImage, wanted: Sequence[AclBinding], ids: Sequence[UUID]
) -> Generator[None, None, CreationDecision]:
    """Return one outcome for each rule; yield after every few, so that other work can run.

    `ids` has one id for each rule, drawn once for the request: a second decision after a lost
    answer finds the rules by their content and writes nothing twice.
    """
    outcomes: list[PenstockError | None] = []
    new: dict[AclBinding, UUID] = {}
    for number, (acl, acl_id) in enumerate(zip(wanted, ids, strict=True), 1):
        problem = _problem(acl)
        outcomes.append(problem)
        if problem is None and acl not in image.acl_ids:
            new.setdefault(acl, acl_id)
        if number % _RULES_AT_ONCE == 0:
            yield
    refused = _room_problem(image, len(new))
    if refused is not None:
        outcomes = [
            refused if problem is None and acl in new else problem
            for acl, problem in zip(wanted, outcomes, strict=True)
        ]
        new = {}
    return CreationDecision(tuple(outcomes), {acl_id: acl for acl, acl_id in new.items()})


def _problem(acl: AclBinding) -> PenstockError | None:
    problem = creation_problem(acl)
    if problem is not None:
        return InvalidRequestError(problem)
    for what, text in (("resource name", acl.name), ("principal", acl.principal)):
        if len(text.encode()) > ACL_TEXT_BYTES_MAX:
            return PolicyViolationError(
                f"The {what} of an ACL may have {ACL_TEXT_BYTES_MAX} bytes at most."
            )
    if len(acl.host.encode()) > ACL_TEXT_BYTES_MAX:
        return PolicyViolationError(
            f"The host of an ACL may have {ACL_TEXT_BYTES_MAX} bytes at most."
        )
    return None


def _room_problem(image: MetadataImage, added: int) -> PenstockError | None:
    if added > CHANGED_RULES_MAX:
        # Kafka's words.
        return PolicyViolationError("Unable to perform excessively large batch operation.")
    if added and len(image.acls) + added > ACLS_MAX:
        return PolicyViolationError(
            f"{len(image.acls)} ACLs exist and {added} more are too many: the maximum is "
            f"{ACLS_MAX}. Use prefixes, or delete unused ACLs."
        )
    return None


def creation_writes(
    keys: Keys, new: Mapping[UUID, AclBinding], guards: tuple[Compare, ...]
) -> Iterator[GuardedWrites]:
    """Yield the transactions that store these rules, DENY rules first."""
    ordered = sorted(new.items(), key=lambda one: one[1].permission != Permission.DENY)
    for start in range(0, len(ordered), STORE_OPERATIONS_MAX):
        few = ordered[start : start + STORE_OPERATIONS_MAX]
        # No compare: an id is random, and writing a rule twice has the same result as once.
        puts = tuple(Put(keys.acl(acl_id), values.write_acl(acl)) for acl_id, acl in few)
        yield GuardedWrites(guards, puts)


class DeletionDecision(NamedTuple):
    """The rules that each filter matches, or its error, and the rules to delete."""

    outcomes: tuple[tuple[AclBinding, ...] | PenstockError, ...]
    deleted: Mapping[UUID, AclBinding]


def decide_deletions(
    image: MetadataImage, filters: Sequence[AclFilter], tried: Mapping[UUID, AclBinding]
) -> Generator[None, None, DeletionDecision]:
    """Return the rules of each filter; yield after every few, so that other work can run.

    A rule that two filters match is in the answer of both. `tried` are the rules that an earlier
    attempt of the same request may have deleted: they match as before.
    """
    tried_ids: dict[AclBinding, list[UUID]] = {}
    for acl_id, acl in tried.items():
        tried_ids.setdefault(acl, []).append(acl_id)
    deleted: dict[UUID, AclBinding] = {}
    outcomes: list[tuple[AclBinding, ...] | PenstockError] = []
    scans = 0
    for number, condition in enumerate(filters, 1):
        if number % _RULES_AT_ONCE == 0:
            yield
        problem = _filter_error(condition)
        if problem is not None:
            outcomes.append(problem)
            continue
        exact = exact_rule(condition)
        if exact is None:
            scans += 1
            if scans > ACL_SCANS_PER_REQUEST_MAX:
                return _refused(filters, PolicyViolationError(_TOO_MANY_SCANS))
            found = yield from _scan(_known(image, tried), condition)
        else:
            ids = (*image.acl_ids.get(exact, ()), *tried_ids.get(exact, ()))
            found = dict.fromkeys(ids, exact)
        deleted.update(found)
        if len(deleted) > CHANGED_RULES_MAX:
            return _refused(filters, InvalidRequestError(TOO_MANY_DELETED))
        outcomes.append(tuple(dict.fromkeys(found.values())))
    return DeletionDecision(tuple(outcomes), deleted)


_TOO_MANY_SCANS: Final = (
    f"At most {ACL_SCANS_PER_REQUEST_MAX} filters of one request may match several ACLs: send "
    "several requests, or use wider filters."
)


def _refused(filters: Sequence[AclFilter], error: PenstockError) -> DeletionDecision:
    return DeletionDecision((error,) * len(filters), {})


def _filter_error(condition: AclFilter) -> PenstockError | None:
    problem = filter_problem(condition)
    return None if problem is None else InvalidRequestError(problem)


def exact_rule(condition: AclFilter) -> AclBinding | None:
    """Return the one rule that a filter can match; None if it can match several."""
    if (
        condition.resource_type == ResourceType.ANY
        or condition.name is None
        or condition.pattern_type in (PatternType.ANY, PatternType.MATCH)
        or condition.principal is None
        or condition.host is None
        or condition.operation == AclOperation.ANY
        or condition.permission == Permission.ANY
    ):
        return None
    return AclBinding(
        condition.resource_type,
        condition.name,
        condition.pattern_type,
        condition.principal,
        condition.host,
        condition.operation,
        condition.permission,
    )


def _known(
    image: MetadataImage, tried: Mapping[UUID, AclBinding]
) -> Iterator[tuple[UUID, AclBinding]]:
    """Yield each rule, without a copy of them all at once."""
    for acl_id in image.acls:
        yield acl_id, image.acls[acl_id]
    for acl_id, acl in tried.items():
        if acl_id not in image.acls:
            yield acl_id, acl


def _scan(
    known: Iterator[tuple[UUID, AclBinding]], condition: AclFilter
) -> Generator[None, None, dict[UUID, AclBinding]]:
    found: dict[UUID, AclBinding] = {}
    name = None if condition.pattern_type == PatternType.MATCH else condition.name
    principal = condition.principal
    for number, (acl_id, acl) in enumerate(known, 1):
        # Most rules differ in these two, and comparing all fields takes several times as long.
        is_near = name in (None, acl.name) and principal in (None, acl.principal)
        if is_near and condition.matches(acl):
            found[acl_id] = acl
        if number % _RULES_AT_ONCE == 0:
            yield
    return found


def deletion_writes(
    keys: Keys, deleted: Sequence[UUID], removal_id: UUID, guards: tuple[Compare, ...]
) -> GuardedWrites:
    """Return the one transaction that takes all these rules out of force."""
    if len(deleted) <= STORE_OPERATIONS_MAX:
        return GuardedWrites(guards, tuple(Delete(keys.acl(one)) for one in deleted))
    value = values.write_acl_removal(deleted)
    return GuardedWrites(guards, (Put(keys.acl_removal(removal_id), value),))


def sweep_writes(
    keys: Keys, image: MetadataImage, guards: tuple[Compare, ...]
) -> Iterator[GuardedWrites]:
    """Yield the transactions that delete the keys of removed rules, and of the removals."""
    for removal_id, ids in image.acl_removals.items():
        operations: list[Operation] = [Delete(keys.acl(one)) for one in ids]
        # Last: until then the rules stay deleted.
        operations.append(Delete(keys.acl_removal(removal_id)))
        for start in range(0, len(operations), STORE_OPERATIONS_MAX):
            yield GuardedWrites(guards, tuple(operations[start : start + STORE_OPERATIONS_MAX]))
