"""The users of a cluster, asked through a broker, or from a data directory without one.

Both have the same methods, so that each command of `penstock user` works both ways.
"""

from collections.abc import Sequence
from typing import Protocol, TypeVar

from penstock.cli.brokers import open_cluster
from penstock.client.transport.call import Call
from penstock.client.user_calls import (
    SaltedPassword,
    UserCredentials,
    delete_credential,
    describe_users,
    set_password,
)

Result = TypeVar("Result")


class UserStore(Protocol):
    """Users and their credentials."""

    def users(self, names: Sequence[str] | None) -> list[UserCredentials]:
        """Return these users or all, sorted; a user without a credential is left out."""
        ...

    def set_password(self, user: str, passwords: Sequence[SaltedPassword]) -> None:
        """Set the credentials of a user, one for each mechanism."""
        ...

    def delete(self, user: str, mechanisms: Sequence[str]) -> None:
        """Delete the credentials of a user for these mechanisms."""
        ...


def user_store(
    data_dir: str | None, bootstrap: str, timeout_seconds: float, *, creates: bool = False
) -> UserStore:
    """Return the store in a data directory, or that of the cluster.

    `creates`: create a missing data directory.
    """
    if data_dir is not None:
        # Imported here: a command that asks a broker does not need the parts of one.
        from penstock.cli.user.offline_users import OfflineUsers

        return OfflineUsers(data_dir, creates=creates)
    return ClusterUsers(bootstrap, timeout_seconds)


class ClusterUsers:
    """Users through Kafka's APIs."""

    def __init__(self, bootstrap: str, timeout_seconds: float) -> None:
        self._bootstrap = bootstrap
        self._timeout_seconds = timeout_seconds

    def users(self, names: Sequence[str] | None) -> list[UserCredentials]:
        """Return these users or all, sorted; a user without a credential is left out."""
        return self._ask(describe_users(names), repeatable=True)

    def set_password(self, user: str, passwords: Sequence[SaltedPassword]) -> None:
        """Set the credentials of a user; one request for each, as Kafka demands."""
        for password in passwords:
            # With the same salt, setting twice has the same result as once.
            self._ask(set_password(user, password), repeatable=True)

    def delete(self, user: str, mechanisms: Sequence[str]) -> None:
        """Delete the credentials of a user for these mechanisms."""
        for mechanism in mechanisms:
            self._ask(delete_credential(user, mechanism), repeatable=False)

    def _ask(self, call: Call[Result], *, repeatable: bool) -> Result:
        with open_cluster(self._bootstrap, self._timeout_seconds) as cluster:
            return cluster.repeat(lambda: cluster.anywhere(call), repeatable=repeatable)
