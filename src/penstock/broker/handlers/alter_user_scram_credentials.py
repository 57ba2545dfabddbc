"""AlterUserScramCredentials: credentials of users are set and deleted.

A client sends the salted password. Both keys are derived from it at once, and only they are kept:
neither the store, nor a log, nor an error has the salted password.
"""

from collections.abc import Iterable

from penstock.broker.context import RequestContext
from penstock.broker.denials import CLUSTER_DENIED
from penstock.broker.error_mapping import outcome_of
from penstock.broker.pacing.slices import map_in_slices
from penstock.cluster.scram_changes import ScramChange, ScramDeletion, ScramUpsertion
from penstock.core.errors import PenstockError
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from penstock.security.acls.values import Operation
from penstock.security.audit import user_values
from penstock.security.scram_credential import ITERATIONS_MAX, MECHANISMS, credential_of


async def handle(
    request: AlterUserScramCredentialsRequest, context: RequestContext
) -> AlterUserScramCredentialsResponse:
    """Each user changes or is refused by itself; a user that is named twice is refused."""
    services = context.services
    if not context.allows_cluster(Operation.ALTER):
        users = tuple(_users(request))
        denied = await map_in_slices(_denied, users, services.turns, services.clock)
        return AlterUserScramCredentialsResponse(results=tuple(denied))
    assert services.users is not None
    changes: list[ScramChange] = []
    changes += await map_in_slices(_deletion, request.deletions, services.turns, services.clock)
    changes += await map_in_slices(_upsertion, request.upsertions, services.turns, services.clock)
    outcomes = await services.users.change(changes)
    context.record_changes([one for one in changes if outcomes[one.user] is None], _values)
    results = await map_in_slices(_result, tuple(outcomes.items()), services.turns, services.clock)
    return AlterUserScramCredentialsResponse(results=tuple(results))


def _users(request: AlterUserScramCredentialsRequest) -> Iterable[str]:
    """Return each user of the request once."""
    deleted = (one.name for one in request.deletions)
    set_ = (one.name for one in request.upsertions)
    return dict.fromkeys((*deleted, *set_))


def _denied(user: str) -> AlterUserScramCredentialsResult:
    return AlterUserScramCredentialsResult(
        user=user, error_code=CLUSTER_DENIED.code, error_message=CLUSTER_DENIED.message
    )


def _deletion(asked: ScramCredentialDeletion) -> ScramDeletion:
    return ScramDeletion(asked.name, MECHANISMS.get(asked.mechanism))


def _upsertion(asked: ScramCredentialUpsertion) -> ScramUpsertion:
    mechanism = MECHANISMS.get(asked.mechanism)
    credential = None
    if mechanism is not None and asked.salted_password and asked.iterations <= ITERATIONS_MAX:
        credential = credential_of(
            mechanism, bytes(asked.salted_password), bytes(asked.salt), asked.iterations
        )
    return ScramUpsertion(asked.name, mechanism, asked.iterations, credential)


def _values(change: ScramChange) -> dict[str, str]:
    assert change.mechanism is not None
    is_deleted = isinstance(change, ScramDeletion)
    return user_values(change.user, change.mechanism, is_deleted=is_deleted)


def _result(answered: tuple[str, PenstockError | None]) -> AlterUserScramCredentialsResult:
    user, error = answered
    code, message = outcome_of(error)
    return AlterUserScramCredentialsResult(user=user, error_code=code, error_message=message)


def refuse(
    request: AlterUserScramCredentialsRequest, code: ErrorCode, message: str | None
) -> AlterUserScramCredentialsResponse:
    """The answer that refuses each user."""
    return AlterUserScramCredentialsResponse(
        results=tuple(
            AlterUserScramCredentialsResult(user=user, error_code=code, error_message=message)
            for user in _users(request)
        )
    )
