"""The values of references in a definition: `${env:NAME}` and `${file:/run/secrets/name}`.

Guarantees: a value is returned only to the code that opens a connection with it. Each call reads it
anew, so that files may change while a pipeline runs; `version_of` differs afterwards. The newest
values stay in the memory of the process, for `hidden`, which removes them from the text of an
error. They are in no file and in nothing that is pickled. An
empty secret is an error.

An error names the key of the definition: the option after the name of its section.
"""

import hashlib
import os
import re
import stat
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from penstock.spark.tables.definition.catalogs import PASSWORD, REFERENCE, is_secret
from penstock.spark.tables.definition.errors import UnusableError

SECRET_BYTES_MAX: Final = 65_536
"""A key, a token, or the JSON document of a service account."""
HIDDEN_CHARACTERS_MIN: Final = 4
"""A shorter secret would hide words of the message; it is no secret either."""


SEEN_MAX: Final = 64
"""The number of remembered values: keys that are rotated each minute are hidden for an hour."""
_seen: dict[str, None] = {}
"""The values that were resolved in this process, the oldest first."""


class SecretError(UnusableError):
    """A variable or a file of a secret cannot be read, or is empty."""


class SecretFileError(SecretError):
    """A file of a secret cannot be read or is empty: it may be replaced at this moment."""


def resolved(section: str, options: Mapping[str, str]) -> dict[str, str]:
    """Return the options, with the values of variables and files instead of references."""
    return {name: _resolved(f"{section}.{name}", text) for name, text in options.items()}


def version_of(section: str, options: Mapping[str, str]) -> str:
    """Return a text that differs after a variable or a file of these options has changed."""
    digest = hashlib.sha256()
    for name, text in sorted(options.items()):
        if REFERENCE.search(text):
            digest.update(f"{name}={_resolved(f'{section}.{name}', text)}\0".encode())
    return digest.hexdigest()


def keep_hidden(options: Mapping[str, str]) -> None:
    """Let `hidden` remove the secrets of these options, such as keys that a catalog hands out."""
    for name, text in options.items():
        if is_secret(name):
            remember(str(text))


def hidden(text: str, options: Mapping[str, str]) -> str:
    """Return a library's text without the secrets of these options and the remembered ones."""
    for name, written in options.items():
        found = PASSWORD.match(written)
        if found:
            remember(found["password"])
        if not (is_secret(name) or REFERENCE.search(written)):
            continue
        try:
            for one in REFERENCE.finditer(written):
                _value(name, *one.groups())
        except SecretError:
            continue
    for secret in sorted(_seen, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def remember(secret: str) -> None:
    """Let `hidden` remove this text, such as a password in the encoding of a header."""
    if len(secret) < HIDDEN_CHARACTERS_MIN:
        return
    _seen.pop(secret, None)
    _seen[secret] = None
    while len(_seen) > SEEN_MAX:
        del _seen[next(iter(_seen))]


def forget() -> None:
    """Remove no remembered secret from texts any more."""
    _seen.clear()


def _resolved(key: str, text: str) -> str:
    part = PASSWORD.match(text)

    def value(found: re.Match[str]) -> str:
        secret = _value(key, *found.groups())
        if part is None or found.start() < part.start("password") or found.end() > part.end(1):
            return secret
        encoded = quote(secret, safe="")  # a password may have the signs of an address
        remember(encoded)
        return encoded

    return REFERENCE.sub(value, text)


def _value(key: str, kind: str, place: str) -> str:
    if kind == "env":
        value = os.environ.get(place)
        if value is None:
            raise SecretError(
                "",
                key,
                f"the environment variable {place} is not set.",
                "Export it where the pipeline runs; on a cluster, for the executors too "
                f"(spark.executorEnv.{place}).",
            )
        if not value.strip():
            raise SecretError(
                "",
                key,
                f"the environment variable {place} is empty.",
                "Export the secret in it where the pipeline runs; on a cluster, for the executors "
                f"too (spark.executorEnv.{place}).",
            )
        remember(value)
        return value
    try:
        data = _read(place)
        if len(data) > SECRET_BYTES_MAX:
            raise SecretError(
                "", key, f"{place} has more than {SECRET_BYTES_MAX} bytes.", "Name another file."
            )
        value = data.decode("utf-8").rstrip("\r\n")
    except (OSError, ValueError) as error:
        is_text = not isinstance(error, UnicodeDecodeError)
        reason = (getattr(error, "strerror", None) or str(error)) if is_text else "it is not UTF-8"
        raise SecretFileError(
            "",
            key,
            f"{place} cannot be read: {reason}.",
            "Create it where the pipeline runs (on a cluster, on every machine), or correct it.",
        ) from None
    if not value.strip():
        raise SecretFileError(
            "",
            key,
            f"{place} is empty.",
            "Write the secret into it where the pipeline runs (on a cluster, on every machine).",
        )
    remember(value)
    return value


def _read(place: str) -> bytes:
    """Return the first bytes of a file; a pipe or a device is an error, not a wait."""
    handle = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError("it is not a regular file")
        return file.read(SECRET_BYTES_MAX + 1)
