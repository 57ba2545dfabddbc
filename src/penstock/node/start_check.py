"""`start_problems`: why a broker would not start with these settings of security.

It runs the code of the start, so each problem has the words of `penstock serve`. It reads the files
that the settings name: certificates, keys, passwords, users, access rules. It opens no port,
connects to nothing and changes nothing.

Two parts of a start are NOT examined: the ports, and the data directory, except for the question
whether it has an access rule. While a broker uses the directory, that is not known, and settings
that need a rule are accepted.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from penstock.cluster.keys import Keys
from penstock.cluster.stores.stored_keys import has_stored_key
from penstock.core.clock import Clock
from penstock.core.errors import ConfigError
from penstock.core.metrics import Registry
from penstock.core.settings.tree import Settings
from penstock.node.identity import METADATA_FILE
from penstock.node.security.certificates_in_use import CertificatesInUse, tls_files
from penstock.node.security.cluster_store import etcd_options
from penstock.node.security.credential_checks import credential_checks
from penstock.node.security.node_security import read_administrator
from penstock.node.security.rules_reload import read_rules
from penstock.node.security.start_rules import check_access, check_mapping_rules


def start_problems(settings: Settings, clock: Clock) -> Iterator[ConfigError]:
    """Yield the errors that a start would raise."""
    checks: list[Callable[[], object]] = [lambda: check_mapping_rules(settings)]
    try:
        checks += _certificates(settings, clock)
    except ConfigError as error:
        yield error
    checks.append(lambda: credential_checks(settings, lambda _mechanism, _user: None, clock))
    checks.append(lambda: check_rules(settings))
    if settings.cluster.is_set:
        checks.append(lambda: etcd_options(settings))
    path = settings.security.bootstrap_admin_file
    if path is not None:
        checks.append(lambda: read_administrator(path))
    for check in checks:
        try:
            check()
        except ConfigError as error:
            yield error


def check_rules(settings: Settings) -> None:
    """Raise `ConfigError` for a bad rules file, and for access rules that let no client in."""
    security = settings.security
    if security.authorizer != "acl":
        return
    has_rules = security.acl_file is not None and bool(read_rules(security.acl_file))
    check_access(settings, has_rules=has_rules or may_have_rules(settings))


def may_have_rules(settings: Settings) -> bool:
    """Whether the data directory has an access rule, as far as that can be known."""
    if settings.cluster.is_set:
        # The rules are in etcd, which is not asked.
        return True
    if settings.node.storage == "memory":
        return False
    return has_stored_key(Path(settings.node.data_dir, METADATA_FILE), Keys().acls) is not False


def _certificates(settings: Settings, clock: Clock) -> Iterator[Callable[[], object]]:
    """Yield the checks of all doors with TLS; raise `ConfigError` for a bad password file."""
    for name, files in tls_files(settings).items():
        yield partial(CertificatesInUse, {name: files}, clock, Registry())
