"""Decisions about the credentials of users: which changes of a request are valid. Pure.

The input is an image and the changes of one request, the output one outcome for each user and the
credentials to write. The checks, their order and their wording are Kafka's: the first mention of a
user decides, and a second mention of a user whose first one is valid rejects both. On top of
Kafka's checks, names must be canonical (`security.user_names`), and the number of credentials and
the length of salts are bounded.

A credential has one key, and each write compares with the last change to the same key. Neither a
password nor a salted password reaches this module.
"""

from collections.abc import Collection, Generator, Iterator, Sequence
from typing import Final, NamedTuple

from penstock.cluster import values
from penstock.cluster.controller import GuardedWrites
from penstock.cluster.image import MetadataImage
from penstock.cluster.keys import Keys
from penstock.cluster.stores.port import Compare, Delete, Operation, Put
from penstock.core.errors import (
    DuplicateUserError,
    PenstockError,
    PolicyViolationError,
    UnacceptableCredentialError,
    UnknownMechanismError,
    UnknownUserError,
)
from penstock.core.limits import STORE_COMPARES_MAX, STORE_OPERATIONS_MAX
from penstock.core.security_limits import (
    SCRAM_CHANGES_PER_REQUEST_MAX,
    SCRAM_CREDENTIALS_MAX,
    SCRAM_SALT_BYTES_MAX,
)
from penstock.security.scram_credential import ITERATIONS_MAX, ITERATIONS_MIN, ScramCredential
from penstock.security.user_names import name_problem

_CHANGES_AT_ONCE: Final = 200
"""Changes checked before other work gets a turn: 1 ms."""


class ScramDeletion(NamedTuple):
    """The deletion of a user's credential for a mechanism."""

    user: str
    mechanism: str | None
    """None: the request names an unknown one."""


class ScramUpsertion(NamedTuple):
    """A new credential of a user, or another one instead of the present one."""

    user: str
    mechanism: str | None
    """None: the request names an unknown one."""
    iterations: int
    credential: ScramCredential | None
    """None: the mechanism is unknown, or the salted password is empty."""


ScramChange = ScramDeletion | ScramUpsertion


class ScramDecision(NamedTuple):
    """The outcome of each user, and the changes to write."""

    outcomes: dict[str, PenstockError | None]
    """By user, in the order of the request; None is success."""
    accepted: tuple[ScramChange, ...]


def decide_scram(
    image: MetadataImage,
    changes: Sequence[ScramChange],
    deleted: Collection[tuple[str, str]] = (),
) -> Generator[None, None, ScramDecision]:
    """Return the outcome of each user of a request; yield after every few.

    `deleted` are the credentials, by mechanism and user, that an earlier attempt of the same
    request may have deleted.
    """
    outcomes: dict[str, PenstockError | None] = {}
    if len(changes) > SCRAM_CHANGES_PER_REQUEST_MAX:
        # Kafka's words.
        refused = PolicyViolationError("Unable to perform excessively large batch operation.")
        return ScramDecision(dict.fromkeys((change.user for change in changes), refused), ())
    accepted: dict[str, ScramChange] = {}
    room = SCRAM_CREDENTIALS_MAX - len(image.scram)
    for number, change in enumerate(changes, 1):
        if number % _CHANGES_AT_ONCE == 0:
            yield
        if change.user in outcomes:
            if outcomes[change.user] is None:
                outcomes[change.user] = DuplicateUserError(
                    "A user credential cannot be altered twice in the same request"
                )
                accepted.pop(change.user, None)
            continue
        try:
            room -= _check(image, change, room, deleted)
        except PenstockError as error:
            outcomes[change.user] = error.with_traceback(None)
            continue
        outcomes[change.user] = None
        accepted[change.user] = change
    return ScramDecision(outcomes, tuple(accepted.values()))


def _check(
    image: MetadataImage, change: ScramChange, room: int, deleted: Collection[tuple[str, str]]
) -> int:
    """Return how many credentials the change adds; raise a domain error to reject it."""
    if not change.user:
        raise UnacceptableCredentialError(name_problem(""))
    if change.mechanism is None:
        raise UnknownMechanismError("Unknown SCRAM mechanism")
    key = (change.mechanism, change.user)
    if isinstance(change, ScramDeletion):
        if key not in image.scram and key not in deleted:
            raise UnknownUserError("Attempt to delete a user credential that does not exist")
        return 0
    _check_credential(change)
    if key in image.scram:
        return 0
    if room <= 0:
        raise PolicyViolationError(
            f"{SCRAM_CREDENTIALS_MAX} SCRAM credentials exist, which is the maximum: delete unused "
            "ones."
        )
    return 1


def _check_credential(change: ScramUpsertion) -> None:
    if change.iterations < ITERATIONS_MIN:
        raise UnacceptableCredentialError("Too few iterations")
    if change.iterations > ITERATIONS_MAX:
        raise UnacceptableCredentialError("Too many iterations")
    problem = name_problem(change.user)
    if problem:
        raise UnacceptableCredentialError(problem)
    if change.credential is None:
        raise UnacceptableCredentialError("Salted password must not be empty")
    if len(change.credential.salt) > SCRAM_SALT_BYTES_MAX:
        raise UnacceptableCredentialError(
            f"Salt must not be longer than {SCRAM_SALT_BYTES_MAX} bytes"
        )


def scram_writes(
    keys: Keys,
    image: MetadataImage,
    changes: Sequence[ScramChange],
    created_ms: int,
    guards: tuple[Compare, ...],
) -> Iterator[GuardedWrites]:
    """Yield the transactions that store these changes."""
    many = min(STORE_COMPARES_MAX - len(guards), STORE_OPERATIONS_MAX)
    for start in range(0, len(changes), many):
        compares: list[Compare] = list(guards)
        operations: list[Operation] = []
        for change in changes[start : start + many]:
            assert change.mechanism is not None
            key = keys.scram(change.mechanism, change.user)
            known = image.scram.get((change.mechanism, change.user))
            compares.append(Compare.unchanged(key, 0 if known is None else known.revision))
            if isinstance(change, ScramDeletion):
                operations.append(Delete(key))
            else:
                assert change.credential is not None
                operations.append(Put(key, values.write_scram(change.credential, created_ms)))
        yield GuardedWrites(tuple(compares), tuple(operations))
