"""Access rules and credentials over a connection, for the tests that need some.

Rules are `AclBinding`; wrong numbers on the wire are passed by `fields`. Answers are plain tuples,
in no order of the broker, so that those of two brokers can be compared.
"""

from collections.abc import Iterable

from penstock.protocol.messages import (
    alter_user_scram_credentials,
    create_acls,
    delete_acls,
    describe_acls,
    describe_user_scram_credentials,
)
from penstock.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from penstock.protocol.messages.create_acls import AclCreation, CreateAclsResponse
from penstock.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsResponse
from penstock.protocol.messages.describe_acls import DescribeAclsResponse
from penstock.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsResponse,
    UserName,
)
from penstock.security.acls.filters import read_binding
from penstock.security.acls.values import (
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from tests.broker.handlers.asker import Asker

Outcome = tuple[int, str | None]
"""Error code and message."""
SHA_256, SHA_512 = 1, 2


def rule(
    name: str,
    *,
    principal: str = "User:u",
    operation: Operation = Operation.READ,
    permission: Permission = Permission.ALLOW,
    pattern: PatternType = PatternType.LITERAL,
    resource_type: ResourceType = ResourceType.TOPIC,
    host: str = "*",
) -> AclBinding:
    """A rule with the usual values."""
    return AclBinding(resource_type, name, pattern, principal, host, operation, permission)


def creation(one: AclBinding, **fields: object) -> AclCreation:
    """A rule to create; `fields` replace its fields on the wire."""
    given = {
        "resource_type": one.resource_type,
        "resource_name": one.name,
        "resource_pattern_type": one.pattern_type,
        "principal": one.principal,
        "host": one.host,
        "operation": one.operation,
        "permission_type": one.permission,
    }
    return AclCreation(**(given | fields))  # type: ignore[arg-type]


def create(asker: Asker, *wanted: AclBinding | AclCreation, version: int = 3) -> list[Outcome]:
    """Create rules; one outcome each."""
    creations = tuple(creation(one) if isinstance(one, AclBinding) else one for one in wanted)
    request = create_acls.CreateAclsRequest(creations=creations)
    answer = asker.ask(request, version, CreateAclsResponse)
    return [(int(one.error_code), one.error_message) for one in answer.results]


def described(asker: Asker, version: int = 3, /, **fields: object) -> set[AclBinding]:
    """The rules that a filter matches."""
    answer = describe(asker, version, **fields)
    assert (int(answer.error_code), answer.error_message) == (0, "")
    found = [
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
    ]
    assert len(set(found)) == len(found)
    patterns = [
        (one.resource_type, one.resource_name, one.pattern_type) for one in answer.resources
    ]
    assert len(set(patterns)) == len(patterns)
    return set(found)


def describe(asker: Asker, version: int = 3, /, **fields: object) -> DescribeAclsResponse:
    """The answer about a filter; without fields it matches each rule."""
    request = describe_acls.DescribeAclsRequest(**(_any() | fields))  # type: ignore[arg-type]
    return asker.ask(request, version, DescribeAclsResponse)


def _any() -> dict[str, object]:
    return {
        "resource_type_filter": ResourceType.ANY,
        "pattern_type_filter": PatternType.ANY,
        "operation": Operation.ANY,
        "permission_type": Permission.ANY,
    }


def condition(**fields: object) -> DeleteAclsFilter:
    """A filter of a deletion; without fields it matches each rule."""
    return DeleteAclsFilter(**(_any() | fields))  # type: ignore[arg-type]


def exactly(one: AclBinding) -> DeleteAclsFilter:
    """The filter that matches one rule."""
    return DeleteAclsFilter(
        resource_type_filter=one.resource_type,
        resource_name_filter=one.name,
        pattern_type_filter=one.pattern_type,
        principal_filter=one.principal,
        host_filter=one.host,
        operation=one.operation,
        permission_type=one.permission,
    )


def delete(
    asker: Asker, *filters: DeleteAclsFilter, version: int = 3
) -> list[tuple[Outcome, dict[AclBinding, Outcome]]]:
    """Delete rules; the outcome of each filter, and those of its rules."""
    request = delete_acls.DeleteAclsRequest(filters=filters)
    answer = asker.ask(request, version, DeleteAclsResponse)
    return [
        (
            (int(result.error_code), result.error_message),
            {
                read_binding(
                    resource_type=one.resource_type,
                    name=one.resource_name,
                    pattern_type=one.pattern_type,
                    principal=one.principal,
                    host=one.host,
                    operation=one.operation,
                    permission=one.permission_type,
                ): (int(one.error_code), one.error_message)
                for one in result.matching_acls
            },
        )
        for result in answer.filter_results
    ]


# --- Users ---


def upsertion(
    name: str,
    mechanism: int = SHA_256,
    *,
    iterations: int = 4096,
    salted_password: bytes = b"s" * 32,
) -> ScramCredentialUpsertion:
    """A credential to set."""
    return ScramCredentialUpsertion(
        name=name,
        mechanism=mechanism,
        iterations=iterations,
        salt=b"salt",
        salted_password=salted_password,
    )


def deletion(name: str, mechanism: int = SHA_256) -> ScramCredentialDeletion:
    """A credential to delete."""
    return ScramCredentialDeletion(name=name, mechanism=mechanism)


def alter(
    asker: Asker, *changes: ScramCredentialUpsertion | ScramCredentialDeletion
) -> dict[str, Outcome]:
    """Change credentials; the outcome of each user."""
    request = alter_user_scram_credentials.AlterUserScramCredentialsRequest(
        deletions=tuple(one for one in changes if isinstance(one, ScramCredentialDeletion)),
        upsertions=tuple(one for one in changes if isinstance(one, ScramCredentialUpsertion)),
    )
    answer = asker.ask(request, 0, AlterUserScramCredentialsResponse)
    found = {one.user: (int(one.error_code), one.error_message) for one in answer.results}
    assert len(found) == len(answer.results)
    return found


def users(
    asker: Asker, names: Iterable[str] | None = None
) -> dict[str, tuple[Outcome, dict[int, int]]]:
    """The outcome of each user, and its iterations by mechanism."""
    request = describe_user_scram_credentials.DescribeUserScramCredentialsRequest(
        users=None if names is None else tuple(UserName(name=one) for one in names)
    )
    answer = asker.ask(request, 0, DescribeUserScramCredentialsResponse)
    assert (int(answer.error_code), answer.error_message) == (0, "")
    found = {
        one.user: (
            (int(one.error_code), one.error_message),
            {info.mechanism: info.iterations for info in one.credential_infos},
        )
        for one in answer.results
    }
    assert len(found) == len(answer.results)
    return found
