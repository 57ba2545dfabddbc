"""The certificate files of a connection to etcd, read together.

Guarantees: a missing or unreadable file is a `StoreError` that names the setting, the file and the
reason. It does NOT check the certificates: gRPC does when it connects.
"""

from pathlib import Path
from typing import NamedTuple

from penstock.cluster.etcd.etcd_options import EtcdOptions
from penstock.core.errors import StoreError


class CertificateFiles(NamedTuple):
    """Contents in PEM; None for a file that is not set."""

    authorities: bytes | None
    certificate: bytes | None
    key: bytes | None


def read_certificate_files(options: EtcdOptions) -> CertificateFiles:
    """Read the files. Blocks."""
    return CertificateFiles(
        _content("authority file", options.ca_file),
        _content("certificate file", options.certificate_file),
        _content("key file", options.key_file),
    )


def _content(name: str, path: str) -> bytes | None:
    if not path:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise StoreError(
            f"the {name} for etcd, {path}, cannot be read ({error.strerror}): correct the setting "
            "or the file's permissions"
        ) from error
