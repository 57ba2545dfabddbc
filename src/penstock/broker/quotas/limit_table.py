"""Which quota counts for a client: Kafka's order of precedence, for one kind of quota. Pure.

The most specific entity that has this kind of quota counts, in this order:

    user and client id            the two alone
    user and any client id        each client id of the user for itself
    user                          all client ids of the user together
    any user and client id        each user with this client id for itself
    any user and any client id    each pair for itself
    any user                      each user for itself
    client id                     all users of the client id together
    any client id                 each client id for itself

A client that sends no id, or an empty one, has only what its user has. The store bounds the number
of entities, and `QUOTA_STATES_MAX` that of remembered answers.
"""

from typing import Final, NamedTuple

from penstock.core.limits import QUOTA_STATES_MAX

ABSENT: Final = ""
"""In place of a user or a client id that an entity does not name. None is a default."""

EntityKey = tuple[str | None, str | None]
"""User and client id of an entity."""


class QuotaClient(NamedTuple):
    """A client as quotas know it."""

    user: str
    """The name of its principal."""
    client_id: str


class Bound(NamedTuple):
    """The bound that counts for one client."""

    sharers: tuple[str, str]
    """User and client id whose use is counted together; "" where all are."""
    limit: float


class LimitTable:
    """The limits of one kind."""

    __slots__ = ("_known", "_limits")

    def __init__(self) -> None:
        self._limits: dict[EntityKey, float] = {}
        self._known: dict[QuotaClient, Bound | None] = {}

    def __len__(self) -> int:
        return len(self._limits)

    def put(self, entity: EntityKey, limit: float | None) -> None:
        """Set the limit of an entity; None removes it."""
        if limit is None:
            self._limits.pop(entity, None)
        else:
            self._limits[entity] = limit
        self._known.clear()

    def bound_of(self, client: QuotaClient) -> Bound | None:
        """The bound that counts for a client, None if there is none."""
        if not self._limits:
            return None
        if client in self._known:
            return self._known[client]
        if len(self._known) >= QUOTA_STATES_MAX:
            self._known.clear()
        bound = self._known[client] = self._decide(client)
        return bound

    def _decide(self, client: QuotaClient) -> Bound | None:
        user, client_id = client
        limits = self._limits
        for named_user in (user, None):
            if client_id:
                for named_client in (client_id, None):
                    if (named_user, named_client) in limits:
                        return Bound((user, client_id), limits[named_user, named_client])
            if (named_user, ABSENT) in limits:
                return Bound((user, ABSENT), limits[named_user, ABSENT])
        if client_id:
            for named_client in (client_id, None):
                if (ABSENT, named_client) in limits:
                    return Bound((ABSENT, client_id), limits[ABSENT, named_client])
        return None
