"""`GivenSettings`: reads a user's security settings, with messages that never show a secret (pure).

Every message names the setting with the user's prefix. Values of secret settings are returned as
`Secret`, and their text is not part of any error. It does NOT know which settings exist: the
modules of TLS and of SASL have the names.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from penstock.core.errors import ConfigError
from penstock.security.secret import Secret

MAY_BE_EMPTY: Final = frozenset(
    {
        "ssl.endpoint.identification.algorithm",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.extensions",
    }
)
"""Settings with a meaning for an empty value; any other empty value is a mistake."""


class GivenSettings:
    """The settings of one client."""

    def __init__(self, settings: Mapping[str, str], prefix: str, known: frozenset[str]) -> None:
        self._settings = {name: settings[name] for name in settings if name in known}
        self._prefix = prefix
        for name in self.names():
            if not self._settings[name].strip() and name not in MAY_BE_EMPTY:
                raise ConfigError(f"{self.shown(name)} is empty. Set a value or remove it.")

    def names(self) -> list[str]:
        """Return the names of all given settings, sorted."""
        return sorted(self._settings)

    def shown(self, name: str) -> str:
        """Return the name as the user wrote it."""
        return f"{self._prefix}{name}"

    def has(self, name: str) -> bool:
        """Whether the setting is given."""
        return name in self._settings

    def text(self, name: str, default: str = "") -> str:
        """Return a value that may be shown, without the space around it."""
        return self._settings.get(name, default).strip()

    def secret(self, name: str) -> Secret | None:
        """Return a value that must not be shown, unchanged; None if it is not given."""
        value = self._settings.get(name)
        if value is None:
            return None
        try:
            value.encode()
        except UnicodeEncodeError:
            # Without its cause: the cause has the value.
            raise ConfigError(
                f"{self.shown(name)} is not valid Unicode. Write the value as UTF-8."
            ) from None
        return Secret(value)

    def first(self, names: Iterable[str]) -> str | None:
        """Return the first of the names that is given."""
        return next((name for name in names if name in self._settings), None)

    def only(self, names: Iterable[str]) -> str | None:
        """Return the one name that is given; raise `ConfigError` if several are."""
        found = [name for name in names if name in self._settings]
        if len(found) > 1:
            raise self.contradiction(found[0], found[1])
        return found[0] if found else None

    def alias(self, names: Iterable[str]) -> str | None:
        """Return the given one of several names of one setting; their values must be equal."""
        found = [name for name in names if name in self._settings]
        for other in found[1:]:
            if Secret(self._settings[other]) != Secret(self._settings[found[0]]):
                raise self.contradiction(found[0], other)
        return found[0] if found else None

    def contradiction(self, one: str, other: str) -> ConfigError:
        """Return the error of two settings that exclude each other."""
        return ConfigError(
            f"{self.shown(one)} and {self.shown(other)} contradict each other. Set only one."
        )

    def refuse(self, names: Iterable[str], reason: str) -> None:
        """Raise `ConfigError` with the reason if one of the names is given."""
        name = self.first(names)
        if name is not None:
            raise ConfigError(f"{self.shown(name)} {reason}")
