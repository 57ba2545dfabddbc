"""Judges the certificates of TLS listeners and of the admin port, and names remedies (pure).

Guarantees: each problem that would make clients refuse the certificate, now or within
`EXPIRY_NOTICE_DAYS`, is a finding. It does NOT verify signatures: `certificate_probe` does, and it
reports the results as facts.
"""

import shlex
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Final

from penstock.cli.doctor.facts import CertificateFacts, ChainLink
from penstock.cli.doctor.judging import FINDING, FINE, NOTE, Judgement
from penstock.core.quantities import count_text, printable

EXPIRY_NOTICE_DAYS: Final = 30
"""Authorities that renew automatically do it about 30 days before the end."""
NAMES_SHOWN_MAX: Final = 5
NAME_CHARACTERS_MAX: Final = 100
"""Of a name in a certificate."""

_CHECK: Final = "certificate"
_CONTENTS: Final = {
    "certificate": "a PEM file with the certificate and the authorities that signed it",
    "key": "a PEM file with the private key",
    "client_ca": "a PEM file with the authorities of clients",
}
_NO_PERMISSION: Final = "permission denied"
_DAY_MS: Final = 86_400_000
_OTHERS: Final = 0o007
_GROUP: Final = 0o070
_GROUP_MORE_THAN_READ: Final = 0o030


def judge_certificates(found: Iterable[CertificateFacts], now_ms: int) -> Iterator[Judgement]:
    """Judge the certificates of all listeners and of the admin port."""
    is_unexamined = False
    for facts in found:
        yield from judge_certificate(facts, now_ms)
        is_unexamined |= not (facts.is_examined or facts.problem)
    if is_unexamined:
        yield Judgement(
            _CHECK,
            NOTE,
            "dates, names and chains of certificates were not checked: the package cryptography "
            "is not installed. Install it with `pip install 'penstock[security]'`",
        )


def judge_certificate(facts: CertificateFacts, now_ms: int) -> Iterator[Judgement]:
    """Judge one certificate, its key and the authorities of its clients."""
    problems = [*_file_problems(facts), *_client_ca_problems(facts, now_ms)]
    if facts.links:
        problems += _own_problems(facts)
        problems += _date_problems(facts, now_ms)
        problems += _chain_problems(facts)
    if facts.is_rsa:
        problems.append(_rsa_note(facts))
    yield from problems
    if any(one.level == FINDING for one in problems):
        return
    if facts.refusal:
        words = f"a broker does not start: {facts.refusal.removesuffix('.')}"
        yield _finding(facts, words, facts.refusal_remedy or "Create the files again.")
    elif facts.links:
        yield Judgement(_CHECK, FINE, _summary(facts))


def matches_host(host: str, dns_names: Iterable[str], addresses: Iterable[str]) -> bool:
    """Whether a client that connects to the host accepts a certificate with these names."""
    try:
        wanted = ip_address(host.partition("%")[0])
    except ValueError:
        name = _dns_text(host)
        return any(_matches_name(name, _dns_text(one)) for one in dns_names)
    return any(wanted == ip_address(one) for one in addresses)


def _matches_name(name: str, pattern: str) -> bool:
    """A `*` stands for the whole first label, and for nothing else (RFC 6125)."""
    if not pattern.startswith("*."):
        return name == pattern
    label, dot, rest = name.partition(".")
    return bool(label and dot) and rest == pattern[2:]


def _dns_text(name: str) -> str:
    """Return the form of a name to compare: lower case, in ASCII, without a dot at its end."""
    plain = name.removesuffix(".").lower()
    try:
        return plain.encode("idna").decode("ascii")
    except UnicodeError:
        return plain


def _file_problems(facts: CertificateFacts) -> Iterator[Judgement]:
    """Yield the problems of the files themselves."""
    if facts.problem:
        yield _finding(
            facts,
            f"{facts.certificate_file}: {facts.problem}",
            _file_remedy(facts, "certificate", facts.problem),
        )
    if facts.key_problem:
        yield _finding(
            facts,
            f"{facts.key_file}: {facts.key_problem}",
            _file_remedy(facts, "key", facts.key_problem),
        )
    elif facts.key_mode & (_OTHERS | _GROUP):
        yield _judge_mode(facts)


def _client_ca_problems(facts: CertificateFacts, now_ms: int) -> Iterator[Judgement]:
    problem = facts.client_ca_problem
    last_ms = facts.client_ca_last_valid_ms
    if not problem and last_ms is not None and last_ms < now_ms:
        problem = f"its authorities expired, the last one at {_time_text(last_ms)}"
    if problem:
        yield _finding(
            facts,
            f"{facts.client_ca_file}: {problem}. No client certificate is accepted",
            _file_remedy(facts, "client_ca", problem),
        )


def _file_remedy(facts: CertificateFacts, name: str, problem: str) -> str:
    if _NO_PERMISSION in problem:
        return "Run `penstock doctor` as the user of the broker, or give it the file (chown)."
    return f"Set {_setting(facts, name)} to {_CONTENTS[name]}."


def _judge_mode(facts: CertificateFacts) -> Judgement:
    # Root gives a key to the group of a service with the mode 640 or 440: Debian's ssl-cert, and
    # the volumes of Kubernetes.
    is_shared_by_root = facts.is_key_of_root and not facts.key_mode & (
        _OTHERS | _GROUP_MORE_THAN_READ
    )
    if is_shared_by_root:
        return Judgement(
            _CHECK,
            NOTE,
            f"{_owner(facts)}: the group of {facts.key_file} can read the private key (mode "
            f"{facts.key_mode:o}); only the broker's user may be in this group",
        )
    return _finding(
        facts,
        f"other users of this machine can use the private key: {facts.key_file} has the mode "
        f"{facts.key_mode:o}",
        f"`chmod 600 {shlex.quote(facts.key_file)}`",
    )


def _own_problems(facts: CertificateFacts) -> Iterator[Judgement]:
    """Yield the problems of the broker's own certificate, apart from its dates."""
    file = facts.certificate_file
    if not facts.is_key_fit:
        yield _finding(
            facts,
            f"the key in {facts.key_file} does not belong to the certificate in {file}",
            f"Set {_setting(facts, 'key')} to the key of this certificate.",
        )
    if not facts.is_for_servers:
        yield _finding(
            facts,
            f"{file} is not a certificate for servers: its extended key usage has no serverAuth",
            f"Renew {file} with the extended key usage serverAuth.",
        )
    names = (*facts.dns_names, *facts.addresses)
    if not names:
        yield _finding(
            facts,
            f"{file} has no alternative names (SAN), and clients ignore the common name",
            f"Renew {file} with the alternative name {facts.host or 'that clients connect to'}.",
        )
    elif facts.host and not matches_host(facts.host, facts.dns_names, facts.addresses):
        shown = ", ".join(_name(name) for name in names[:NAMES_SHOWN_MAX])
        more = f" and {len(names) - NAMES_SHOWN_MAX} more" if len(names) > NAMES_SHOWN_MAX else ""
        wanted = "the advertised host" if facts.listener else "the host"
        yield _finding(
            facts,
            f"{file} is for {shown}{more}, not for {facts.host}, {wanted}: clients refuse it",
            f"Set {_setting(facts, 'host')} to a name in the certificate, or renew {file} with "
            f"the name {facts.host}.",
        )


def _rsa_note(facts: CertificateFacts) -> Judgement:
    return Judgement(
        _CHECK,
        NOTE,
        f"{_owner(facts)}: {facts.certificate_file} has an RSA key ({facts.key_kind}); a new "
        "connection takes about half the CPU time with an ECDSA P-256 key",
    )


def _date_problems(facts: CertificateFacts, now_ms: int) -> Iterator[Judgement]:
    """Yield at most one problem: of the certificate that expires first, or is not valid yet."""
    file = facts.certificate_file
    late = max(facts.links, key=lambda link: link.first_valid_ms)
    first = min(facts.links, key=lambda link: link.last_valid_ms)
    remedy = f"Renew the certificate and replace {file}."
    if now_ms < late.first_valid_ms:
        yield _finding(
            facts,
            f"{_link_text(late, facts)} is valid starting at {_time_text(late.first_valid_ms)}",
            "Set the clock of this machine (`timedatectl set-ntp true`), or wait.",
        )
    elif now_ms > first.last_valid_ms:
        when = _time_text(first.last_valid_ms)
        yield _finding(
            facts, f"{_link_text(first, facts)} expired at {when}: clients refuse it", remedy
        )
    elif first.last_valid_ms - now_ms < EXPIRY_NOTICE_DAYS * _DAY_MS:
        days = count_text((first.last_valid_ms - now_ms) // _DAY_MS, "day")
        when = _time_text(first.last_valid_ms)
        yield _finding(facts, f"{_link_text(first, facts)} expires in {days}, at {when}", remedy)


def _chain_problems(facts: CertificateFacts) -> Iterator[Judgement]:
    """Yield the first gap between a certificate and the one that must follow it."""
    file = facts.certificate_file
    for link, following in zip(facts.links, facts.links[1:], strict=False):
        if not link.is_signed_by_next:
            yield _finding(
                facts,
                f"in {file} the certificate of {_name(link.subject)} is followed by that of "
                f"{_name(following.subject)}, which did not sign it",
                f"Write {file} again: the broker's certificate, then the one of "
                f"{_name(link.issuer)} that signed it, and so on.",
            )
            return
    if not facts.is_issuer_known:
        issuer = _name(facts.links[-1].issuer)
        yield _finding(
            facts,
            f"{file} does not contain the certificate of {issuer}, which signed its last one, and "
            "no authority known here has this name: if it is an intermediate authority, clients "
            "refuse the connection",
            f"Append the certificate of {issuer} to {file}. If clients trust it as their root, "
            "give it with --command-config (ssl.ca.location).",
        )


def _summary(facts: CertificateFacts) -> str:
    first = min(link.last_valid_ms for link in facts.links)
    host = f" for {facts.host}" if facts.host else ""
    count = count_text(len(facts.links), "certificate")
    return (
        f"{_owner(facts)}: {facts.certificate_file} ({count}) is valid{host} until "
        f"{_time_text(first)}"
    )


def _link_text(link: ChainLink, facts: CertificateFacts) -> str:
    if link is facts.links[0]:
        return facts.certificate_file
    return f"the certificate of {_name(link.subject)} in {facts.certificate_file}"


def _owner(facts: CertificateFacts) -> str:
    return f"listener {facts.listener}" if facts.listener else "admin port"


def _setting(facts: CertificateFacts, name: str) -> str:
    """Return the setting of the certificate, the key, the client_ca or the host."""
    if not facts.listener:
        return f"admin.{name}"
    return f"{'advertised_host' if name == 'host' else f'tls.{name}'} of listener {facts.listener}"


def _name(text: str) -> str:
    return printable(text)[:NAME_CHARACTERS_MAX]


def _time_text(time_ms: int) -> str:
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M} UTC"


def _finding(facts: CertificateFacts, words: str, remedy: str) -> Judgement:
    return Judgement(_CHECK, FINDING, f"{_owner(facts)}: {words}", remedy)
