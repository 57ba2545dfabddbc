"""`UserChanges`: the SCRAM credentials of users are changed in the metadata.

A login reads the credential from the newest image, so a change holds for the next login; open
sessions go on.
"""

from collections.abc import Mapping, Sequence

from penstock.cluster.access.security_service import change_scram, create_first_user
from penstock.cluster.scram_changes import ScramChange, ScramUpsertion
from penstock.cluster.service import MetadataService
from penstock.core.clock import Clock
from penstock.core.errors import PenstockError
from penstock.security.scram_credential import ScramCredential


class UserChanges:
    """Changes credentials, and returns the present ones."""

    def __init__(self, metadata: MetadataService, clock: Clock) -> None:
        self._metadata = metadata
        self._clock = clock

    async def change(self, changes: Sequence[ScramChange]) -> Mapping[str, PenstockError | None]:
        """Return one outcome for each user; when the call returns, the next login follows it."""
        return await change_scram(self._metadata, changes, now_ms=self._clock.now_ms())

    async def create_first(self, credentials: Sequence[ScramUpsertion]) -> bool:
        """Store the credentials of the first user, all or none; False if there is a user."""
        return await create_first_user(self._metadata, credentials, now_ms=self._clock.now_ms())

    def credential(self, mechanism: str, user: str) -> ScramCredential | None:
        """Return the credential of a user for a mechanism, for a login."""
        found = self._metadata.image.scram.get((mechanism, user))
        return None if found is None else found.credential
