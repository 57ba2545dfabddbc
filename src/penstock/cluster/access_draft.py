"""Changes of access rules and credentials, and the draft of both in a new image. Pure.

`changes` interprets the events of a store into these changes and applies them. A rule that a
removal names stays deleted although its key still exists: a removal of thousands of rules is one
write, and so it is atomic in a store whose transactions are small.

The draft holds the differences from the image it began with, so its cost grows with the changes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar
from uuid import UUID

from penstock.cluster.image import MetadataImage, ScramImage
from penstock.cluster.persistent_map import PersistentMap
from penstock.security.acls.values import AclBinding


@dataclass(frozen=True, slots=True)
class AclStored:
    """A new access rule."""

    id: UUID
    acl: AclBinding


@dataclass(frozen=True, slots=True)
class AclsRemoved:
    """Deleted access rules; an earlier change may have deleted some of them."""

    ids: tuple[UUID, ...]


@dataclass(frozen=True, slots=True)
class AclRemovalNoted:
    """Deleted rules whose keys still exist; None when the keys are deleted too."""

    removal_id: UUID
    ids: tuple[UUID, ...] | None


@dataclass(frozen=True, slots=True)
class ScramChanged:
    """A user has this credential for a mechanism; None if it has none."""

    mechanism: str
    user: str
    credential: ScramImage | None


AccessChange = AclStored | AclsRemoved | AclRemovalNoted | ScramChanged


class AccessDraft:
    """The rules and credentials of an image in preparation."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._acls: dict[UUID, AclBinding | None] = {}
        self._ids: dict[AclBinding, tuple[UUID, ...] | None] = {}
        self._removals = dict(image.acl_removals)
        self._scram: dict[tuple[str, str], ScramImage | None] = {}

    @property
    def acls(self) -> PersistentMap[UUID, AclBinding]:
        """The rules by id."""
        return changed_map(self._image.acls, self._acls)

    @property
    def acl_ids(self) -> PersistentMap[AclBinding, tuple[UUID, ...]]:
        """The ids by rule."""
        return changed_map(self._image.acl_ids, self._ids)

    @property
    def acl_removals(self) -> Mapping[UUID, tuple[UUID, ...]]:
        """The removals whose keys still exist."""
        return MappingProxyType(self._removals)

    @property
    def scram(self) -> PersistentMap[tuple[str, str], ScramImage]:
        """The credentials."""
        return changed_map(self._image.scram, self._scram)

    def take(self, change: AccessChange) -> None:
        """Apply one change."""
        match change:
            case AclStored(acl_id, acl):
                self._acls[acl_id] = acl
                self._ids[acl] = tuple(sorted({*self._ids_of(acl), acl_id}))
            case AclsRemoved(ids):
                for one in ids:
                    self._remove(one)
            case AclRemovalNoted(removal_id, None):
                self._removals.pop(removal_id, None)
            case AclRemovalNoted(removal_id, ids):
                assert ids is not None
                self._removals[removal_id] = ids
            case ScramChanged(mechanism, user, credential):
                self._scram[mechanism, user] = credential

    def _ids_of(self, acl: AclBinding) -> tuple[UUID, ...]:
        found = self._ids[acl] if acl in self._ids else self._image.acl_ids.get(acl)
        return found or ()

    def _remove(self, acl_id: UUID) -> None:
        acl = self._acls[acl_id] if acl_id in self._acls else self._image.acls.get(acl_id)
        if acl is None:
            return
        self._acls[acl_id] = None
        self._ids[acl] = tuple(one for one in self._ids_of(acl) if one != acl_id) or None


Key = TypeVar("Key")
Value = TypeVar("Value")


def changed_map(
    before: PersistentMap[Key, Value], changed: Mapping[Key, Value | None]
) -> PersistentMap[Key, Value]:
    """Return the map after these changes; None removes a key."""
    return before.changed(
        {key: value for key, value in changed.items() if value is not None},
        frozenset(key for key, value in changed.items() if value is None),
    )
