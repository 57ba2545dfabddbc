"""Checks of passwords: by the users file, by the SCRAM users of the cluster, or by a directory.

Each one returns the name of the principal, or None for a wrong password, and raises
`CheckUnavailableError` if it cannot decide. Guarantees: hashing and waiting happen on threads with
a bounded queue; the check of an unknown user takes as long as that of a known one; a check of a
directory returns the directory's own name, never the one that was typed.

Good answers of a directory are remembered for `REMEMBERED_SECONDS`, by an HMAC of user and password
with a key of this process, so that neither is kept. Bad answers are not remembered. Checks of the
same password at the same time share one question to the directory.

They do NOT count failures: `security.sasl.throttle` does.
"""

import asyncio
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from penstock.core.clock import Clock
from penstock.core.errors import ConfigError
from penstock.node.security.check_threads import CheckThreads, CheckUnavailableError
from penstock.security.sasl import password_file, scram_server
from penstock.security.sasl.password_file import PasswordHash, parse_users
from penstock.security.sasl_client import SCRAM_SHA_256, SCRAM_SHA_512
from penstock.security.scram_credential import ScramCredential
from penstock.security.secret import Secret

REMEMBERED_SECONDS: Final = 30.0
REMEMBERED_MAX: Final = 10_000
DIRECTORY_THREADS: Final = 4
DIRECTORY_QUEUED_MAX: Final = 64


class Directory(Protocol):
    """A directory of users, such as `node.security.ldap.LdapDirectory`. Its call blocks."""

    def check(self, user: str, password: Secret) -> str | None:
        """Return the name of the principal; None for a wrong password."""
        ...


class FilePasswords:
    """The users of a file."""

    def __init__(self, users: Mapping[str, PasswordHash], threads: CheckThreads) -> None:
        self.users = users
        """Replace it when the file has changed."""
        self._threads = threads

    def version(self, user: str) -> object:
        """Return the stored hash of a user, which changes with the password."""
        return self.users.get(user)

    async def verify(self, user: str, password: Secret) -> str | None:
        """Return the name of the principal; None for a wrong password."""
        stored = self.users.get(user)
        matches = partial(password_file.password_matches, stored, password)
        return user if await self._threads.run(matches) else None


class ScramPasswords:
    """The SCRAM users of the cluster, with the stronger of their credentials."""

    def __init__(
        self, credential: Callable[[str, str], ScramCredential | None], threads: CheckThreads
    ) -> None:
        """`credential` returns the credential of a mechanism and a user."""
        self._credential = credential
        self._threads = threads

    def version(self, user: str) -> object:
        """Return the credentials of a user, which change with the password."""
        return self._credential(SCRAM_SHA_512, user), self._credential(SCRAM_SHA_256, user)

    async def verify(self, user: str, password: Secret) -> str | None:
        """Return the name of the principal; None for a wrong password."""
        stronger = self._credential(SCRAM_SHA_512, user)
        weaker = self._credential(SCRAM_SHA_256, user)
        matches = partial(scram_server.user_password_matches, stronger, weaker, password)
        return user if await self._threads.run(matches) else None


class DirectoryPasswords:
    """The users of a directory."""

    def __init__(
        self, directory: Directory, clock: Clock, threads: CheckThreads | None = None
    ) -> None:
        self._directory = directory
        self._clock = clock
        self._threads = threads or CheckThreads(
            "directory-check", threads_max=DIRECTORY_THREADS, queued_max=DIRECTORY_QUEUED_MAX
        )
        self._key = secrets.token_bytes(32)
        self._remembered: OrderedDict[bytes, tuple[str, float]] = OrderedDict()
        """The principal and the end of each good answer, oldest first."""
        self._asked: dict[bytes, asyncio.Future[str | None]] = {}
        """Questions that are not answered yet."""

    def version(self, user: str) -> object:  # noqa: ARG002 (of the port)
        """Return None: a directory does not report its changes."""
        return None

    async def verify(self, user: str, password: Secret) -> str | None:
        """Return the name of the principal; None for a wrong password."""
        if not password.reveal():
            return None
        mark = self._mark(user, password)
        known = self._recall(mark)
        if known is not None:
            return known
        asked = self._asked.get(mark)
        if asked is not None:
            # Shielded: one client that goes away must not end the check of the others.
            return await asyncio.shield(asked)
        return await self._ask(mark, user, password)

    async def _ask(self, mark: bytes, user: str, password: Secret) -> str | None:
        shared = self._asked[mark] = asyncio.get_running_loop().create_future()
        error: BaseException = CheckUnavailableError("the check was interrupted")
        try:
            found = await self._threads.run(partial(self._directory.check, user, password))
        except Exception as raised:
            error = raised
            raise
        else:
            shared.set_result(found)
        finally:
            del self._asked[mark]
            if not shared.done():
                shared.set_exception(error)
                shared.exception()  # there may be no other login that waits for it
        if found is not None:
            self._remember(mark, found)
        return found

    def _mark(self, user: str, password: Secret) -> bytes:
        name = user.encode("utf-8", "surrogatepass")
        typed = password.reveal().encode("utf-8", "surrogatepass")
        # With its length: no other user and password have the same bytes.
        return hmac.digest(self._key, len(name).to_bytes(8) + name + typed, "sha256")

    def _recall(self, mark: bytes) -> str | None:
        found = self._remembered.get(mark)
        return found[0] if found is not None and self._clock.monotonic() < found[1] else None

    def _remember(self, mark: bytes, principal_name: str) -> None:
        now = self._clock.monotonic()
        self._remembered[mark] = (principal_name, now + REMEMBERED_SECONDS)
        self._remembered.move_to_end(mark)
        while len(self._remembered) > REMEMBERED_MAX or (
            next(iter(self._remembered.values()))[1] <= now
        ):
            self._remembered.popitem(last=False)


def read_users_file(path: str) -> dict[str, PasswordHash]:
    """Return the users of a file; raise `ConfigError`. It blocks."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(password_file.FILE_BYTES_MAX + 1)
        text = data.decode()
    except OSError as error:
        raise ConfigError(
            f"security.users_file {path} cannot be read: {error.strerror}.",
            hint="Check the path and its permissions.",
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"security.users_file {path} is not UTF-8: byte {error.start} is wrong.",
            hint="Write its lines with `penstock user hash`.",
        ) from None
    try:
        return parse_users(text)
    except ConfigError as error:
        raise ConfigError(f"security.users_file {path}: {error}", hint=error.hint) from error
