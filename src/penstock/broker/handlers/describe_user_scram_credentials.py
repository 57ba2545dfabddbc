"""DescribeUserScramCredentials: mechanisms and iterations of users; never salts and keys."""

from collections.abc import Sequence

from penstock.broker.context import RequestContext
from penstock.broker.denials import CLUSTER_DENIED
from penstock.broker.pacing.slices import in_slices, map_in_slices
from penstock.cluster.image import MetadataImage
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from penstock.security.acls.values import Operation
from penstock.security.scram_credential import MECHANISM_NUMBERS


async def handle(
    request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> DescribeUserScramCredentialsResponse:
    """Return the named users, or all of them; a user without a credential has an error."""
    services = context.services
    if not context.allows_cluster(Operation.DESCRIBE):
        return refuse(request, CLUSTER_DENIED.code, None)
    image = services.metadata.image
    mentions: dict[str, int] = {}
    if request.users:
        async for users in in_slices(request.users, services.turns, services.clock):
            for one in users:
                mentions[one.name] = mentions.get(one.name, 0) + 1
    else:
        async for keys in in_slices(tuple(image.scram), services.turns, services.clock):
            mentions.update({user: 1 for _, user in keys})

    def describe(counted: tuple[str, int]) -> DescribeUserScramCredentialsResult:
        return _described(image, *counted)

    results = await map_in_slices(describe, tuple(mentions.items()), services.turns, services.clock)
    # Kafka answers a success with an empty text, not with none.
    return DescribeUserScramCredentialsResponse(error_message="", results=tuple(results))


def _described(
    image: MetadataImage, user: str, mentions: int
) -> DescribeUserScramCredentialsResult:
    if mentions > 1:
        return _failed(
            user,
            ErrorCode.DUPLICATE_RESOURCE,
            "Cannot describe SCRAM credentials for the same user twice in a single request: "
            f"{user}",
        )
    found = _credentials(image, user)
    if not found:
        return _failed(
            user,
            ErrorCode.RESOURCE_NOT_FOUND,
            f"Attempt to describe a user credential that does not exist: {user}",
        )
    return DescribeUserScramCredentialsResult(
        user=user, error_message="", credential_infos=tuple(found)
    )


def _credentials(image: MetadataImage, user: str) -> Sequence[CredentialInfo]:
    return [
        CredentialInfo(mechanism=number, iterations=one.credential.iterations)
        for mechanism, number in MECHANISM_NUMBERS.items()
        if (one := image.scram.get((mechanism, user))) is not None
    ]


def _failed(user: str, code: ErrorCode, message: str | None) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(
        user=user, error_code=code, error_message=message, credential_infos=()
    )


def refuse(
    request: DescribeUserScramCredentialsRequest, code: ErrorCode, message: str | None
) -> DescribeUserScramCredentialsResponse:
    """The answer without credentials; as Kafka's, it has one nameless result for each user."""
    refused = _failed("", code, message)
    return DescribeUserScramCredentialsResponse(
        error_code=code, error_message=message, results=(refused,) * len(request.users or ())
    )
