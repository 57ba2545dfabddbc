"""OpenLDAP's slapd with a few known users: one process, no service, no root.

Guarantees: `slapd(folder)` gives a directory that listens on free ports of 127.0.0.1, with
`ldap://` (StartTLS is possible) and `ldaps://`, and with the entries of `ENTRIES`; it has answered
when the block begins, and is stopped when it ends. It accepts anonymous binds and binds with an
empty password (`bind_anon_cred`), as careless directories do: tests show that our side does not.

The program is the installed one (Debian: slapd). Without it, Debian's packages are downloaded by
`apt-get download` and unpacked into the user's cache folder; nothing is installed.
"""

import contextlib
import dataclasses
import functools
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tests.oracle.cache import OracleError, built, progress, run, tool
from tests.oracle.certificates import CertificateAuthority
from tests.oracle.running_broker import HOST, free_port

BASE: Final = "dc=test,dc=local"
PEOPLE: Final = f"ou=people,{BASE}"
ADMIN_NAME: Final = f"cn=admin,{BASE}"
ADMIN_PASSWORD: Final = "secret"
SEARCH_NAME: Final = f"uid=searcher,{PEOPLE}"
SEARCH_PASSWORD: Final = "searcherpw"
PASSWORDS: Final[Mapping[str, str]] = {
    "alice": "alicepw",
    "bob": "grün und blau",
    "o'hara+1 (x)*": "signs",
    "searcher": SEARCH_PASSWORD,
}
TWO_NAMES: Final = "carol"
"""A user with two values of `uid`: `carol` and `carla`. Her password is `carolpw`."""

_PACKAGES: Final = ("slapd", "libltdl7")
_START_SECONDS: Final = 20.0
_STOP_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.02


@dataclasses.dataclass(frozen=True)
class Slapd:
    """The running directory."""

    port: int
    tls_port: int
    authority: CertificateAuthority
    process: "subprocess.Popen[bytes]"

    @property
    def url(self) -> str:
        """Without TLS."""
        return f"ldap://{HOST}:{self.port}"

    @property
    def tls_url(self) -> str:
        """With TLS; the certificate is for localhost and 127.0.0.1."""
        return f"ldaps://{HOST}:{self.tls_port}"

    @property
    def ca(self) -> str:
        """PEM: the authority of its certificate."""
        return str(self.authority.certificate)


@contextlib.contextmanager
def slapd(folder: Path) -> Iterator[Slapd]:
    """Start a directory with its data below `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    authority = CertificateAuthority(folder / "certificates")
    program = _program()
    configuration = folder / "slapd.conf"
    (folder / "db").mkdir()
    configuration.write_text(_configuration(program, folder, authority))
    entries = folder / "entries.ldif"
    entries.write_text(_entries())
    environment = {"LD_LIBRARY_PATH": str(program.libraries)} if program.libraries else {}
    base = [str(program.path), "-f", str(configuration)]
    run([*base[:1], "-Tadd", *base[1:], "-l", entries], environment=environment)
    port, tls_port = free_port(), free_port()
    addresses = f"ldap://{HOST}:{port} ldaps://{HOST}:{tls_port}"
    setpriv = shutil.which("setpriv")
    guard = [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []
    with (folder / "slapd.log").open("ab") as log:
        process = subprocess.Popen(
            [*guard, *base, "-h", addresses, "-d", "0"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
        )
    try:
        _wait(process, (port, tls_port), folder / "slapd.log")
        yield Slapd(port, tls_port, authority, process)
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@dataclasses.dataclass(frozen=True)
class _Program:
    path: Path
    schemas: Path
    modules: Path
    libraries: Path | None
    """Set for an unpacked program."""


@functools.cache
def _program() -> _Program:
    found = shutil.which("slapd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if found is not None:
        return _Program(Path(found), Path("/etc/ldap/schema"), Path("/usr/lib/ldap"), None)
    root = built("slapd-debian", _unpack)
    libraries = next((root / "usr/lib").glob("*-linux-gnu"))
    return _Program(
        root / "usr/sbin/slapd", root / "etc/ldap/schema", root / "usr/lib/ldap", libraries
    )


def _unpack(folder: Path) -> None:
    advice = "install slapd (Debian: slapd)"
    progress("downloading Debian's packages of slapd (2 MB)")
    run([tool("apt-get", advice), "download", *_PACKAGES], folder=folder)
    for package in folder.glob("*.deb"):
        run([tool("dpkg", advice), "-x", package, folder])


def _configuration(program: _Program, folder: Path, authority: CertificateAuthority) -> str:
    server = authority.server()
    schemas = "\n".join(
        f"include {program.schemas}/{name}.schema" for name in ("core", "cosine", "inetorgperson")
    )
    return f"""\
{schemas}
modulepath {program.modules}
moduleload back_mdb
pidfile {folder}/slapd.pid
allow bind_anon_cred
TLSCertificateFile {server.chain}
TLSCertificateKeyFile {server.key}
TLSCACertificateFile {authority.certificate}
database mdb
maxsize 16777216
suffix "{BASE}"
rootdn "{ADMIN_NAME}"
rootpw {ADMIN_PASSWORD}
directory {folder}/db
index objectClass eq
access to attrs=userPassword by anonymous auth by * none
access to dn.subtree="ou=closed,{BASE}" by * auth
access to * by * read
"""


def _entries() -> str:
    people = [_person(name, [name], password) for name, password in PASSWORDS.items()]
    people.append(_person("carol", ["carol", "carla"], "carolpw"))
    people.append(_person("twin", ["twin"], "twinpw"))
    people.append(_person("dave", ["dave"], "davepw", parent=f"ou=closed,{BASE}"))
    people.append(_person("twin", ["twin"], "twinpw", parent=f"ou=others,{BASE}"))
    people.append(_person("locked", ["locked"], ""))
    folders = [
        f"dn: ou={name},{BASE}\nobjectClass: organizationalUnit\nou: {name}\n"
        for name in ("people", "closed", "others")
    ]
    top = f"dn: {BASE}\nobjectClass: dcObject\nobjectClass: organization\no: test\ndc: test\n"
    return "\n".join([top, *folders, *people])


def _person(name: str, names: list[str], password: str, parent: str = PEOPLE) -> str:
    escaped = name.replace("+", "\\+")
    lines = [f"dn: uid={escaped},{parent}", "objectClass: inetOrgPerson", "cn: x", "sn: x"]
    lines += [f"uid: {one}" for one in names]
    if password:
        lines.append(f"userPassword: {password}")
    return "\n".join(lines) + "\n"


def _wait(process: "subprocess.Popen[bytes]", ports: tuple[int, ...], log: Path) -> None:
    deadline = time.perf_counter() + _START_SECONDS
    for port in ports:
        while not _answers(port):
            if process.poll() is not None or time.perf_counter() > deadline:
                text = log.read_text(errors="replace")[-2000:]
                raise OracleError(f"slapd did not start:\n{text}")
            time.sleep(_POLL_SECONDS)


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=1):
        return True
    return False
