"""`Principal`: the identity of a client, as access rules, quotas and the audit log name it (pure).

Its text is Kafka's, `User:alice`. A client without authentication is `User:ANONYMOUS`, as in
Apache Kafka. It holds no secret.
"""

from typing import Final, NamedTuple

from penstock.core.errors import ConfigError

USER: Final = "User"
"""The kind of every principal that Penstock creates."""


class Principal(NamedTuple):
    """Kind and name of an identity."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS: Final = Principal(USER, "ANONYMOUS")
"""The client of a connection without authentication."""


def user(name: str) -> Principal:
    """Return the principal of a user."""
    return Principal(USER, name)


def read_principal(text: str) -> Principal:
    """Return the principal of a text such as `User:alice`; raise `ConfigError` for any other."""
    kind, colon, name = text.partition(":")
    if not (kind and colon and name):
        raise ConfigError(
            f"{text!r} is not a principal.", hint="Write its kind, a colon and its name: User:alice"
        )
    return Principal(kind, name)
