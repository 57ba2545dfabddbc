"""`LdapDirectory`: passwords checked by an LDAP server, with the package ldap3.

Two ways: the name of a user's entry follows from a template, and the directory accepts or refuses a
bind with it; or a service account searches the entry, and then the same. Guarantees:

- an empty password is refused here: a directory would take it for an anonymous bind and accept it.
  A password is sent as its bytes: ldap3 would prepare a text, and a text of soft hyphens alone is
  empty when it is prepared;
- the name of a user is escaped in names of entries and in filters, and a name with control
  characters is refused, so a name cannot select another entry;
- the principal is an attribute of the entry, read back after the bind. Directories ignore case and
  spaces in names, so the name that was typed is not an identity. An entry without exactly one value
  is refused, and so is a search that finds more than one entry;
- off loopback the connection has TLS, whose certificate and host name OpenSSL verifies. ldap3's own
  check of names is not used;
- each answer arrives within the timeout, referrals are not followed, and nothing is written.

`check` blocks: call it on a thread. It raises `CheckUnavailableError` if the directory does not
decide. A user that does not exist and a wrong password take the same path, with one bind each.
This is the only module that uses ldap3.
"""

import contextlib
import logging
import math
import ssl
import urllib.parse
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from penstock.core.errors import ConfigError
from penstock.core.loopback import is_loopback
from penstock.node.security.check_threads import CheckUnavailableError
from penstock.security.sasl.token_claims import is_principal_name
from penstock.security.secret import Secret

with warnings.catch_warnings():
    # ldap3 uses names that pyasn1 has renamed.
    warnings.simplefilter("ignore", DeprecationWarning)
    import ldap3
    from ldap3.core.exceptions import LDAPException
    from ldap3.utils.conv import escape_filter_chars
    from ldap3.utils.dn import escape_rdn

logger = logging.getLogger(__name__)

TIMEOUT_SECONDS_DEFAULT: Final = 3.0
USER: Final = "{user}"
"""Stands for the name of the user in a template or a filter."""

_PORTS: Final = {"ldap": 389, "ldaps": 636}
_SUCCESS: Final = 0
_SIZE_LIMIT_EXCEEDED: Final = 4
_NO_SUCH_OBJECT: Final = 32
_INSUFFICIENT_ACCESS: Final = 50
_WRONG_PASSWORD: Final = frozenset({19, _NO_SUCH_OBJECT, 34, 48, 49, _INSUFFICIENT_ACCESS, 53})
"""Answers to a bind that refuse the user: constraint violation (an expired password), no such
object, invalid name, inappropriate authentication, invalid credentials, insufficient access,
unwilling to perform (a locked account). Others are troubles of the directory."""
_ENTRIES_MAX: Final = 2
"""One more than the one that is wanted."""


@dataclass(frozen=True, slots=True)
class LdapOptions:
    """The settings of a directory."""

    url: str
    """`ldaps://host`, or `ldap://host` with `start_tls` or on loopback; a port may follow."""
    start_tls: bool = False
    ca_file: str | None = None
    """Certificate authorities; None: the system's."""
    user_dn_template: str | None = None
    """The name of a user's entry, with `{user}`; None: the entry is searched."""
    search_base: str | None = None
    search_filter: str = "(uid={user})"
    bind_dn: str | None = None
    """The account that searches; None: an anonymous search."""
    bind_password: Secret | None = None
    principal_attribute: str = "uid"
    timeout_seconds: float = TIMEOUT_SECONDS_DEFAULT


class _CheckedTls(ldap3.Tls):
    """TLS whose certificate and host name OpenSSL verifies in the handshake."""

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(validate=ssl.CERT_REQUIRED)
        self._context = context

    def wrap_socket(self, connection: Any, do_handshake: bool = False) -> None:  # noqa: ANN401, ARG002, FBT001, FBT002 - ldap3's
        """Replace the socket of a connection; its timeout holds for the handshake too."""
        connection.socket = self._context.wrap_socket(
            connection.socket, server_hostname=connection.server.host
        )


class LdapDirectory:
    """One directory."""

    def __init__(self, options: LdapOptions) -> None:
        """Raise `ConfigError` for settings that cannot work or are not safe."""
        self._options = options
        self._scheme, self._host, self._port = _address(options)
        if options.user_dn_template is not None:
            _check_placeholder("ldap.user_dn_template", options.user_dn_template)
        elif options.search_base is None:
            raise ConfigError(
                "neither ldap.user_dn_template nor ldap.search_base is set.",
                hint="Set ldap.user_dn_template = 'uid={user},ou=people,dc=example,dc=org'",
            )
        else:
            _check_placeholder("ldap.search_filter", options.search_filter)
        if (options.bind_dn is None) != (options.bind_password is None):
            raise ConfigError(
                "ldap.bind_dn and ldap.bind_password_file need each other.",
                hint="Set both, or none of them for an anonymous search.",
            )
        if options.bind_password is not None and not options.bind_password.reveal():
            raise ConfigError(
                "the password of ldap.bind_dn is empty.", hint="Write it to the file."
            )
        self._tls = _CheckedTls(_context(options))

    def check(self, user: str, password: Secret) -> str | None:
        """Return the name of the principal; None for a wrong password."""
        if not password.reveal() or not is_principal_name(user):
            return None
        try:
            if self._options.user_dn_template is not None:
                return self._check_by_template(self._options.user_dn_template, user, password)
            return self._check_by_search(user, password)
        except (LDAPException, OSError) as error:
            # Only the kind: texts of ldap3 repeat names.
            raise self._unavailable(type(error).__name__) from None

    def _check_by_template(self, template: str, user: str, password: Secret) -> str | None:
        name = template.replace(USER, escape_rdn(user))
        with self._connection(name, password) as connection:
            if not self._is_bound(connection):
                return None
            found = self._search(connection, name, "(objectClass=*)", ldap3.BASE)
        if not found:
            logger.warning(
                "LDAP: a user is refused because the directory does not let it read its own "
                "entry. Allow it, or set ldap.search_base and an account that searches."
            )
            return None
        return self._principal(found[0])

    def _check_by_search(self, user: str, password: Secret) -> str | None:
        options = self._options
        assert options.search_base is not None
        wanted = options.search_filter.replace(USER, escape_filter_chars(user))
        with self._connection(options.bind_dn, options.bind_password) as connection:
            if not self._is_bound(connection):
                raise self._unavailable("it refuses the account of ldap.bind_dn")
            found = self._search(connection, options.search_base, wanted, ldap3.SUBTREE)
        if len(found) > 1:
            logger.warning("LDAP: a user is refused because ldap.search_filter finds two entries")
        is_found = len(found) == 1
        # A bind for an unknown user too: it must not be recognised by a faster answer.
        name = found[0]["dn"] if is_found else f"cn=unknown,{options.search_base}"
        with self._connection(name, password) as connection:
            is_bound = self._is_bound(connection)
        return self._principal(found[0]) if is_bound and is_found else None

    @contextlib.contextmanager
    def _connection(self, name: str | None, password: Secret | None) -> Iterator[Any]:
        """Yield a connection to the directory, with TLS, before its bind."""
        options = self._options
        server = ldap3.Server(
            self._host,
            port=self._port,
            use_ssl=self._scheme == "ldaps",
            tls=self._tls,
            get_info=ldap3.NONE,
            connect_timeout=options.timeout_seconds,
        )
        connection = ldap3.Connection(
            server,
            user=name,
            password=None if password is None else password.reveal().encode(),  # type: ignore[arg-type]
            authentication=ldap3.ANONYMOUS if name is None else ldap3.SIMPLE,
            client_strategy=ldap3.SYNC,
            auto_bind=ldap3.AUTO_BIND_NONE,
            auto_referrals=False,
            read_only=True,
            check_names=False,
            # ldap3 passes it to the kernel as whole seconds.
            receive_timeout=math.ceil(options.timeout_seconds),
        )
        try:
            connection.open()
            if options.start_tls and not connection.start_tls():
                raise self._unavailable("it does not start TLS")
            yield connection
        finally:
            with contextlib.suppress(LDAPException, OSError):
                connection.unbind()
            # ldap3 keeps the socket of a connection that could not be opened.
            if connection.socket is not None:
                connection.socket.close()

    def _is_bound(self, connection: Any) -> bool:  # noqa: ANN401 - ldap3's
        """Whether the directory accepts name and password of a connection."""
        connection.bind()
        code = connection.result["result"]
        if code == _SUCCESS:
            return True
        if code in _WRONG_PASSWORD:
            return False
        raise self._unavailable(f"result {code} of a bind")

    def _search(self, connection: Any, base: str, wanted: str, scope: str) -> list[dict[str, Any]]:  # noqa: ANN401 - ldap3's
        """Return the entries that are found, two at most."""
        connection.search(
            base,
            wanted,
            search_scope=scope,
            dereference_aliases=ldap3.DEREF_NEVER,
            attributes=[self._options.principal_attribute],
            size_limit=_ENTRIES_MAX,
            time_limit=math.ceil(self._options.timeout_seconds),
        )
        code = connection.result["result"]
        if scope == ldap3.BASE and code == _INSUFFICIENT_ACCESS:
            return []
        if code not in (_SUCCESS, _SIZE_LIMIT_EXCEEDED, _NO_SUCH_OBJECT):
            raise self._unavailable(f"result {code} of a search")
        return [entry for entry in connection.response or () if entry["type"] == "searchResEntry"]

    def _principal(self, entry: dict[str, Any]) -> str | None:
        attribute = self._options.principal_attribute
        values = entry["raw_attributes"].get(attribute, [])
        if len(values) != 1:
            logger.warning(
                "LDAP: a user is refused because its entry has %d values of %s, not one. Set "
                "ldap.principal_attribute to an attribute with one value.",
                len(values),
                attribute,
            )
            return None
        try:
            name = values[0].decode()
        except UnicodeDecodeError:
            name = ""
        if not is_principal_name(name):
            logger.warning("LDAP: a user is refused because its %s cannot be a name", attribute)
            return None
        return str(name)

    def _unavailable(self, reason: str) -> CheckUnavailableError:
        return CheckUnavailableError(
            f"the directory {self._scheme}://{self._host}:{self._port} does not decide: {reason}",
            hint="Check [ldap] in the settings, and that the directory is reachable.",
        )


def _address(options: LdapOptions) -> tuple[str, str, int]:
    """Return scheme, host and port; raise `ConfigError` for a connection without TLS."""
    try:
        parts = urllib.parse.urlsplit(options.url)
        host, port = parts.hostname, parts.port
    except ValueError:
        parts, host, port = urllib.parse.urlsplit(""), None, None
    if parts.scheme not in _PORTS or not host or parts.path not in ("", "/") or parts.query:
        raise ConfigError(
            f"ldap.url: {options.url!r} is not the address of a directory.",
            hint="Write ldaps://host or ldap://host, and a port behind a colon if it has one.",
        )
    if parts.scheme == "ldaps" and options.start_tls:
        raise ConfigError(
            "ldap.start_tls is for ldap:// addresses: ldaps:// has TLS already.",
            hint="Remove ldap.start_tls.",
        )
    if parts.scheme == "ldap" and not options.start_tls and not is_loopback(host):
        raise ConfigError(
            f"ldap.url: {options.url!r} would send passwords unencrypted.",
            hint="Use ldaps://, or set ldap.start_tls = true.",
        )
    return parts.scheme, host, port or _PORTS[parts.scheme]


def _check_placeholder(name: str, text: str) -> None:
    if USER not in text:
        raise ConfigError(
            f"{name}: {text!r} does not contain {USER}, so each user would have one entry.",
            hint=f"Write {USER} in place of the name of the user.",
        )


def _context(options: LdapOptions) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=options.ca_file)
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        raise ConfigError(
            f"ldap.ca_file: {options.ca_file} cannot be used: {type(error).__name__}.",
            hint="Name a PEM file with the certificates of the authorities.",
        ) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    return context
