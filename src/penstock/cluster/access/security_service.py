"""Carries out changes of access rules and of users' credentials, with lost answers survived.

Each function decides on the newest image (`acl_changes`, `scram_changes`) and writes through the
metadata service. When it returns, the image of the service shows the effect. A long decision lets
the event loop run after every millisecond or so.

It does NOT check who may change them: the handlers of the broker do.
"""

import asyncio
import contextlib
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TypeVar
from uuid import UUID, uuid4

from penstock.cluster import acl_changes, scram_changes
from penstock.cluster.link.change_values import ChangeBase, Decision
from penstock.cluster.scram_changes import ScramChange, ScramDeletion, ScramUpsertion
from penstock.cluster.service import MetadataService
from penstock.cluster.unhurried import unhurried
from penstock.core.errors import PenstockError, StoreError
from penstock.security.acls.filters import AclFilter
from penstock.security.acls.values import AclBinding

Result = TypeVar("Result")


async def create_acls(
    metadata: MetadataService,
    wanted: Sequence[AclBinding],
    *,
    random_id: Callable[[], UUID] = uuid4,
) -> list[PenstockError | None]:
    """Create access rules; return one outcome for each, None for success."""
    ids = await unhurried(random_id() for _ in wanted)

    async def decide(base: ChangeBase) -> Decision[list[PenstockError | None]]:
        decision = await _in_turns(acl_changes.decide_creations(base.image, wanted, ids))
        writes = acl_changes.creation_writes(base.keys, decision.new, base.guards)
        return Decision(writes if decision.new else None, lambda: list(decision.outcomes))

    return await metadata.carry_out("create access rules", decide)


async def delete_acls(
    metadata: MetadataService,
    filters: Sequence[AclFilter],
    *,
    random_id: Callable[[], UUID] = uuid4,
) -> list[tuple[AclBinding, ...] | PenstockError]:
    """Delete the rules that filters match, all or none; return those of each filter."""
    removal_id = random_id()
    tried: dict[UUID, AclBinding] = {}

    async def decide(
        base: ChangeBase,
    ) -> Decision[list[tuple[AclBinding, ...] | PenstockError]]:
        decision = await _in_turns(acl_changes.decide_deletions(base.image, filters, tried))
        left = tuple(one for one in decision.deleted if one in base.image.acls)
        tried.update(decision.deleted)
        writes = acl_changes.deletion_writes(base.keys, left, removal_id, base.guards)
        return Decision((writes,) if left else None, lambda: list(decision.outcomes))

    outcomes = await metadata.carry_out("delete access rules", decide)
    if metadata.image.acl_removals:
        # The rules are out of force; their keys are deleted at the next start at the latest.
        with contextlib.suppress(StoreError):
            await _sweep(metadata)
    return outcomes


async def _sweep(metadata: MetadataService) -> None:
    async def decide(base: ChangeBase) -> Decision[None]:
        writes = acl_changes.sweep_writes(base.keys, base.image, base.guards)
        return Decision(writes if base.image.acl_removals else None, lambda: None)

    await metadata.carry_out("delete the keys of access rules", decide)


async def change_scram(
    metadata: MetadataService, changes: Sequence[ScramChange], *, now_ms: int
) -> Mapping[str, PenstockError | None]:
    """Change credentials in this order; return the outcome of each user, None for success."""
    tried: set[tuple[str, str]] = set()

    async def decide(base: ChangeBase) -> Decision[Mapping[str, PenstockError | None]]:
        decision = await _in_turns(scram_changes.decide_scram(base.image, changes, tried))
        tried.update(
            (change.mechanism, change.user)
            for change in decision.accepted
            if isinstance(change, ScramDeletion) and change.mechanism is not None
        )
        writes = scram_changes.scram_writes(
            base.keys, base.image, decision.accepted, now_ms, base.guards
        )
        return Decision(writes if decision.accepted else None, lambda: decision.outcomes)

    return await metadata.carry_out("change credentials", decide)


async def create_first_user(
    metadata: MetadataService, credentials: Sequence[ScramUpsertion], *, now_ms: int
) -> bool:
    """Store the credentials of one user in one transaction; return False if there is a user.

    Raise the error of the first credential that is not accepted.
    """
    written: set[tuple[str | None, str]] = {(one.mechanism, one.user) for one in credentials}

    async def decide(base: ChangeBase) -> Decision[bool]:
        known = set(base.image.scram)
        if known:
            # After a lost answer they may be the ones that this call has written.
            return Decision(None, lambda: known == written)
        for one in credentials:
            decision = await _in_turns(scram_changes.decide_scram(base.image, [one]))
            if (problem := decision.outcomes[one.user]) is not None:
                raise problem
        writes = scram_changes.scram_writes(base.keys, base.image, credentials, now_ms, base.guards)
        return Decision(writes, lambda: True)

    return await metadata.carry_out("create the first user", decide)


async def _in_turns(steps: Generator[None, None, Result]) -> Result:
    """Return the result of a decision; other work runs at each of its pauses."""
    while True:
        try:
            next(steps)
        except StopIteration as finished:
            result: Result = finished.value
            return result
        await asyncio.sleep(0)
