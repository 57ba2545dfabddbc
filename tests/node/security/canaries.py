"""`Canaries`: secrets that occur nowhere else, and the search for them in everything that is kept.

Guarantees: a secret is found as it is, in hexadecimal, in base64 at each of the three places that a
byte can have (also within a longer text, such as `user:password`), with the alphabet of URLs too,
and as Python and JSON write bytes. Secrets shorter than `BYTES_MIN` are refused: they could occur
by chance.

It is NOT a search for secrets that were changed in another way: compressed, or cut in two.
"""

import base64
import json
import secrets
from collections.abc import Iterator
from pathlib import Path

BYTES_MIN = 12


class Canaries:
    """Named secrets, and the places where they must not be."""

    def __init__(self) -> None:
        self._forms: dict[bytes, str] = {}
        self.secrets: dict[str, bytes] = {}

    def new(self, name: str) -> str:
        """A new secret: letters, digits and `-`, so that each format takes it."""
        value = f"canary-{name}-{secrets.token_hex(8)}"
        self.add(name, value)
        return value

    def add(self, name: str, value: str | bytes) -> None:
        """Search for this secret too."""
        data = value.encode() if isinstance(value, str) else value
        assert len(data) >= BYTES_MIN, name
        self.secrets[name] = data
        for form in forms(data):
            self._forms[form] = name

    def found_in(self, data: str | bytes) -> set[str]:
        """The names of the secrets in a text."""
        searched = data.encode(errors="surrogateescape") if isinstance(data, str) else data
        return {name for form, name in self._forms.items() if form in searched}

    def found_below(self, folder: Path) -> dict[str, set[str]]:
        """The names of the secrets in each file of a folder."""
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        assert files
        found = {str(path.relative_to(folder)): self.found_in(path.read_bytes()) for path in files}
        return {name: secret for name, secret in found.items() if secret}


def forms(data: bytes) -> Iterator[bytes]:
    """The forms in which a secret is recognised."""
    yield data
    yield data.hex().encode()
    yield data.hex().upper().encode()
    yield repr(data)[2:-1].encode()
    yield json.dumps(data.decode("latin-1"))[1:-1].encode()
    for before in range(3):
        # Characters that bytes before and behind would change are left out.
        first = -(-before * 8 // 6)
        last = (before + len(data)) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(bytes(before) + data + bytes(3))[first:last]
