"""`TlsFiles`: the certificate files of a listener; `read_files` reads all as one snapshot.

Certificate, key and authorities belong together, so everything that uses them gets a `TlsSnapshot`
with the bytes of all files, never a path. Reading does NOT check the content: `contexts` does.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from penstock.core.errors import ConfigError
from penstock.security.secret import Secret

FILE_BYTES_MAX: Final = 1_048_576
"""One file; the authorities of a whole system have about 250 KiB."""

ClientAuth = Literal["none", "requested", "required"]


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The files of one listener, all of them PEM."""

    certificate: str
    """The broker's certificate, then those of intermediate authorities."""
    key: str
    """The private key; it may be the file of the certificate."""
    key_password: Secret | None = None
    client_ca: str | None = None
    """The authorities that sign clients' certificates."""
    client_auth: ClientAuth = "none"
    """Whether clients may or must have a certificate."""

    @property
    def paths(self) -> tuple[str, ...]:
        """All files that are used."""
        used = [self.certificate, self.key]
        if self.client_auth != "none" and self.client_ca is not None:
            used.append(self.client_ca)
        return tuple(dict.fromkeys(used))


@dataclass(frozen=True, slots=True)
class TlsSnapshot:
    """The content of all files at one moment."""

    certificate: bytes
    key: Secret
    """The text of the key's file. Texts of other encodings are kept byte for byte (Latin-1)."""
    client_ca: bytes | None


def read_files(files: TlsFiles) -> TlsSnapshot:
    """Read all files; raise `ConfigError` for one that cannot be read. Waits for the disk."""
    client_ca = None
    if files.client_auth != "none":
        if files.client_ca is None:
            raise ConfigError(
                f"tls.client_auth is {files.client_auth!r}, and tls.client_ca is not set.",
                hint="Set tls.client_ca to the file with the authorities that sign clients' "
                "certificates, or tls.client_auth to none.",
            )
        client_ca = _read(files.client_ca, "tls.client_ca")
    return TlsSnapshot(
        certificate=_read(files.certificate, "tls.certificate"),
        key=Secret(_read(files.key, "tls.key").decode("latin-1")),
        client_ca=client_ca,
    )


def _read(path: str, setting: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or "the path is invalid"
        raise ConfigError(
            f"the file {path!r} ({setting}) cannot be read: {reason.lower()}.",
            hint="Check the path, and that the user of the broker may read the file.",
        ) from error
    if len(data) > FILE_BYTES_MAX:
        raise ConfigError(
            f"the file {path!r} ({setting}) is too large (limit {FILE_BYTES_MAX} bytes).",
            hint="Name a file with certificates or a key in PEM.",
        )
    return data
