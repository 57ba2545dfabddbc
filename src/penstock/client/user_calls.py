"""Calls about users and their SCRAM credentials as values, as in `client.calls`.

The password never leaves the client: it is salted here, and the salted password is sent. That is as
secret as the password, so it is sent over connections with TLS only where others could listen. An
error of the user that a change names is raised. Nothing is retried here.
"""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.client.transport.call import Call, raise_error
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import (
    alter_user_scram_credentials,
    describe_user_scram_credentials,
)
from penstock.security.scram_credential import MECHANISM_NUMBERS, MECHANISMS, salted_password
from penstock.security.secret import HIDDEN, Secret


class UserCredentials(NamedTuple):
    """A user, and the iterations of its credential for each mechanism."""

    user: str
    iterations: dict[str, int]


class SaltedPassword(NamedTuple):
    """A password as a broker gets it; salt and password are hidden in texts."""

    mechanism: str
    iterations: int
    salt: bytes
    salted: bytes

    def __repr__(self) -> str:
        return f"SaltedPassword({self.mechanism}, {self.iterations}, {HIDDEN})"


def salt_password(password: Secret, mechanism: str, iterations: int, salt: bytes) -> SaltedPassword:
    """Return the salted password; this takes some milliseconds of computing."""
    salted = salted_password(mechanism, password, salt, iterations)
    return SaltedPassword(mechanism, iterations, salt, salted)


def describe_users(names: Sequence[str] | None = None) -> Call[list[UserCredentials]]:
    """Return these users or all, sorted; a user without a credential is left out."""
    request = describe_user_scram_credentials.DescribeUserScramCredentialsRequest(
        users=None
        if names is None
        else tuple(describe_user_scram_credentials.UserName(name=name) for name in names)
    )

    def read(
        answer: describe_user_scram_credentials.DescribeUserScramCredentialsResponse,
    ) -> list[UserCredentials]:
        raise_error(answer.error_code, answer.error_message, "users")
        found = []
        for one in answer.results:
            if one.error_code == ErrorCode.RESOURCE_NOT_FOUND:
                continue
            raise_error(one.error_code, one.error_message, f"user {one.user!r}")
            iterations = {
                MECHANISMS.get(info.mechanism, f"mechanism {info.mechanism}"): info.iterations
                for info in one.credential_infos
            }
            found.append(UserCredentials(one.user, dict(sorted(iterations.items()))))
        return sorted(found)

    return Call(request, describe_user_scram_credentials.DescribeUserScramCredentialsResponse, read)


def set_password(user: str, password: SaltedPassword) -> Call[None]:
    """Set the credential of a user for one mechanism; it replaces an earlier one."""
    upsertion = alter_user_scram_credentials.ScramCredentialUpsertion(
        name=user,
        mechanism=MECHANISM_NUMBERS[password.mechanism],
        iterations=password.iterations,
        salt=password.salt,
        salted_password=password.salted,
    )
    return _change((), (upsertion,))


def delete_credential(user: str, mechanism: str) -> Call[None]:
    """Delete the credential of a user for one mechanism."""
    deletion = alter_user_scram_credentials.ScramCredentialDeletion(
        name=user, mechanism=MECHANISM_NUMBERS[mechanism]
    )
    return _change((deletion,), ())


def _change(
    deletions: tuple[alter_user_scram_credentials.ScramCredentialDeletion, ...],
    upsertions: tuple[alter_user_scram_credentials.ScramCredentialUpsertion, ...],
) -> Call[None]:
    request = alter_user_scram_credentials.AlterUserScramCredentialsRequest(
        deletions=deletions, upsertions=upsertions
    )

    def read(answer: alter_user_scram_credentials.AlterUserScramCredentialsResponse) -> None:
        for one in answer.results:
            raise_error(one.error_code, one.error_message, f"user {one.user!r}")

    return Call(request, alter_user_scram_credentials.AlterUserScramCredentialsResponse, read)
