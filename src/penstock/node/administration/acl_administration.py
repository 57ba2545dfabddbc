"""`AclChanges`: access rules are changed in the metadata, and the authorizer follows the metadata.

The newest image has the rules of the store in force: changes by another broker of the cluster take
effect in the same way, and existing rules are loaded when this broker starts. Rules of a rules file
are in force beside them. They are listed, and they cannot be deleted here: the file is their only
source.
"""

import asyncio
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from penstock.broker.ports import AclDeletion
from penstock.cluster.access.security_service import create_acls, delete_acls
from penstock.cluster.access_draft import AclsRemoved, AclStored
from penstock.cluster.acl_changes import exact_rule
from penstock.cluster.changes import Change
from penstock.cluster.image import MetadataImage
from penstock.cluster.service import MetadataService
from penstock.core.errors import PenstockError, PolicyViolationError
from penstock.security.acls.authorizer import AclAuthorizer, RuleOrigin
from penstock.security.acls.filters import AclFilter
from penstock.security.acls.values import AclBinding

FileRules = Callable[[], AbstractSet[AclBinding]]
"""Returns the rules of the rules file that are in force."""

_NO_RULES: Final[frozenset[AclBinding]] = frozenset()
_FILTERS_AT_ONCE: Final = 200
"""Filters of single rules that are compared before other work gets a turn: below 1 ms."""


class AclChanges:
    """Changes access rules, and puts them in force."""

    def __init__(
        self,
        metadata: MetadataService,
        authorizer: AclAuthorizer,
        *,
        file_rules: FileRules = lambda: _NO_RULES,
        file_name: str = "",
    ) -> None:
        self._metadata = metadata
        self._authorizer = authorizer
        self._file_rules = file_rules
        self._file_name = file_name
        authorizer.replace(RuleOrigin.API, metadata.image.acl_ids)
        metadata.subscribe(self._follow)

    def rules(self) -> Sequence[AclBinding]:
        """Return the rules in force, each once, in no order."""
        stored = self._metadata.image.acl_ids
        return [*stored, *(acl for acl in self._file_rules() if acl not in stored)]

    async def create(self, wanted: Sequence[AclBinding]) -> list[PenstockError | None]:
        """Return one outcome for each rule; when the call returns, it is in force."""
        return await create_acls(self._metadata, wanted)

    async def delete(
        self, filters: Sequence[AclFilter]
    ) -> list[tuple[AclDeletion, ...] | PenstockError]:
        """Return the rules of each filter, or its error; see `cluster.acl_changes`."""
        found = await delete_acls(self._metadata, filters)
        outcomes: list[tuple[AclDeletion, ...] | PenstockError] = []
        for number, (condition, one) in enumerate(zip(filters, found, strict=True), 1):
            if isinstance(one, PenstockError):
                outcomes.append(one)
                continue
            exact = exact_rule(condition)
            if exact is None or number % _FILTERS_AT_ONCE == 0:
                await asyncio.sleep(0)
            kept = self._kept(condition, exact)
            outcomes.append((*(AclDeletion(acl, None) for acl in one), *kept))
        return outcomes

    def _kept(self, condition: AclFilter, exact: AclBinding | None) -> list[AclDeletion]:
        """Return the rules of the file that a filter matches; they stay in force."""
        fixed = self._file_rules()
        if exact is None:
            matching = [acl for acl in fixed if condition.matches(acl)]
        else:
            matching = [exact] if exact in fixed else []
        problem = PolicyViolationError(
            f"The ACL is a rule of the file {self._file_name}: delete it there."
        )
        return [AclDeletion(acl, problem) for acl in matching]

    def _follow(
        self, before: MetadataImage, after: MetadataImage, changes: tuple[Change, ...]
    ) -> None:
        added: set[AclBinding] = set()
        removed: set[AclBinding] = set()
        for change in changes:
            match change:
                case AclStored(_, acl):
                    added.add(acl)
                case AclsRemoved(ids):
                    removed |= {before.acls[one] for one in ids if one in before.acls}
        if added or removed:
            # Of two equal rules, one may be left; a rule may come and go within one change.
            self._authorizer.change(
                RuleOrigin.API,
                added={acl for acl in added if acl in after.acl_ids},
                removed={acl for acl in removed if acl not in after.acl_ids},
            )
