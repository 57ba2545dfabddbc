"""`OfflineUsers`: the users in a data directory that no broker uses."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from penstock.client.user_calls import SaltedPassword, UserCredentials
from penstock.cluster.access.security_service import change_scram
from penstock.cluster.scram_changes import ScramChange, ScramDeletion, ScramUpsertion
from penstock.cluster.service import MetadataService
from penstock.core.clock import SystemClock
from penstock.node.offline_metadata import with_offline_metadata
from penstock.security.scram_credential import credential_of

Result = TypeVar("Result")


class OfflineUsers:
    """Users in a data directory that no broker uses."""

    def __init__(self, path: str, *, creates: bool) -> None:
        self._path = path
        self._creates = creates

    def users(self, names: Sequence[str] | None) -> list[UserCredentials]:
        """Return these users or all, sorted; a user without a credential is left out."""

        async def find(metadata: MetadataService) -> list[UserCredentials]:
            found: dict[str, dict[str, int]] = {}
            for (mechanism, user), image in sorted(metadata.image.scram.items()):
                if names is None or user in names:
                    found.setdefault(user, {})[mechanism] = image.credential.iterations
            return [UserCredentials(user, found[user]) for user in sorted(found)]

        return self._run(find)

    def set_password(self, user: str, passwords: Sequence[SaltedPassword]) -> None:
        """Set the credentials of a user, one for each mechanism."""
        for one in passwords:
            credential = credential_of(one.mechanism, one.salted, one.salt, one.iterations)
            self._change(ScramUpsertion(user, one.mechanism, one.iterations, credential))

    def delete(self, user: str, mechanisms: Sequence[str]) -> None:
        """Delete the credentials of a user for these mechanisms."""
        for mechanism in mechanisms:
            self._change(ScramDeletion(user, mechanism))

    def _change(self, change: ScramChange) -> None:
        async def carry_out(metadata: MetadataService) -> None:
            outcomes = await change_scram(metadata, [change], now_ms=SystemClock().now_ms())
            for problem in outcomes.values():
                if problem is not None:
                    raise problem

        self._run(carry_out)

    def _run(self, work: Callable[[MetadataService], Awaitable[Result]]) -> Result:
        return asyncio.run(with_offline_metadata(self._path, work, creates=self._creates))
