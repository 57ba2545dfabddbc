"""`[security]`, `[tls]`, `[oidc]` and `[ldap]`: identity and access, for all listeners together.

A listener's own protocol, mechanisms and certificate are in `[[listeners]]`
(`core.settings.listener_declarations`). Passwords are never settings: a setting names the file that
has one.
"""

from typing import Annotated, Literal

from pydantic import Field

from penstock.core.settings.settings_section import Section

TEXT_MAX = 4_096


class SecuritySettings(Section):
    """Access rules and logins, for all listeners."""

    authorizer: Annotated[
        Literal["none", "acl"],
        Field(
            description="`acl`: access rules decide, and a request that no rule allows is denied; "
            "it needs a super user or a rule. `none`: each client may do everything.",
        ),
    ] = "none"
    super_users: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=TEXT_MAX,
            description="Principals that may do everything, separated by semicolons, such as "
            "`User:admin;User:ops`.",
            json_schema_extra={"kafka": "super.users"},
        ),
    ] = None
    allow_everyone_if_no_acl_found: Annotated[
        bool,
        Field(
            description="Whether a resource that no access rule matches is open to each client.",
            json_schema_extra={"kafka": "allow.everyone.if.no.acl.found"},
        ),
    ] = False
    acl_file: Annotated[
        str | None,
        Field(
            min_length=1,
            description="JSON file of access rules, in force beside those of the API; it is read "
            "again when it changes.",
        ),
    ] = None
    allow_insecure: Annotated[
        bool,
        Field(
            description="Allow listeners without TLS on addresses that other machines reach. "
            "Passwords, tokens and records then cross the network readable."
        ),
    ] = False
    plain_verifier: Annotated[
        Literal["scram", "file", "ldap"],
        Field(
            description="Source that verifies passwords of the mechanism PLAIN and of `admin.auth` "
            "`basic`. `scram`: the users of this cluster (`penstock user`). `file`: `users_file`. "
            "`ldap`: the directory of `[ldap]`."
        ),
    ] = "scram"
    users_file: Annotated[
        str | None,
        Field(
            min_length=1,
            description="File of users and hashed passwords, for `plain_verifier` `file`. "
            "`penstock user hash` prints its lines; it is read again when it changes.",
        ),
    ] = None
    bootstrap_admin_file: Annotated[
        str | None,
        Field(
            min_length=1,
            description="File with `user:password` of the first administrator, readable by its "
            "owner only: the user is created if the cluster has no SCRAM user yet.",
        ),
    ] = None
    reauthentication_ms_max: Annotated[
        int,
        Field(
            ge=0,
            le=2**53,
            description="Longest session with SASL: a client that does not authenticate again on "
            "its connection within this time is disconnected. 0: only the expiry of a token ends "
            "a session.",
            json_schema_extra={"unit": "milliseconds", "kafka": "connections.max.reauth.ms"},
        ),
    ] = 0
    failed_login_delay_ms: Annotated[
        int,
        Field(
            ge=0,
            le=60_000,
            description="Delay of the answer to a failed login.",
            json_schema_extra={
                "unit": "milliseconds",
                "kafka": "connection.failed.authentication.delay.ms",
            },
        ),
    ] = 100


class TlsSettings(Section):
    """Limits of TLS handshakes. Certificates are in `[[listeners]]` and `[admin]`."""

    handshakes_max: Annotated[
        int,
        Field(
            ge=1,
            le=100_000,
            description="Unfinished handshakes of one listener at one time. Above, the broker "
            "ends the oldest one of the address that has the most.",
            json_schema_extra={"unit": "handshakes"},
        ),
    ] = 256
    handshakes_per_address_max: Annotated[
        int,
        Field(
            ge=1,
            le=100_000,
            description="Unfinished handshakes at one time from one address; an IPv6 address "
            "counts by its first 64 bits.",
            json_schema_extra={"unit": "handshakes"},
        ),
    ] = 16
    handshake_seconds_max: Annotated[
        float,
        Field(
            gt=0,
            le=600,
            allow_inf_nan=False,
            description="A handshake must be complete within this time.",
            json_schema_extra={"unit": "seconds"},
        ),
    ] = 10.0


class OidcSettings(Section):
    """Identity provider for the mechanism OAUTHBEARER and for `admin.auth` `bearer`."""

    issuer: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=TEXT_MAX,
            description="Issuer of accepted tokens: their claim `iss`, byte for byte. Required for "
            "tokens, with `audience` and `jwks`.",
            json_schema_extra={"kafka": "sasl.oauthbearer.expected.issuer"},
        ),
    ] = None
    audience: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=TEXT_MAX,
            description="Audience of accepted tokens: a value of their claim `aud`.",
            json_schema_extra={"kafka": "sasl.oauthbearer.expected.audience"},
        ),
    ] = None
    jwks: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=TEXT_MAX,
            description="Keys of the provider (its `jwks_uri`): an https address, or the path of a "
            "file.",
            json_schema_extra={"kafka": "sasl.oauthbearer.jwks.endpoint.url"},
        ),
    ] = None
    ca_file: Annotated[
        str | None,
        Field(
            min_length=1,
            description="Certificate authorities for the https address; unset: the system's.",
        ),
    ] = None
    principal_claim: Annotated[
        str,
        Field(
            min_length=1,
            max_length=255,
            description="Claim of a token whose value is the name of the user.",
            json_schema_extra={"kafka": "sasl.oauthbearer.sub.claim.name"},
        ),
    ] = "sub"
    clock_skew_seconds: Annotated[
        int,
        Field(
            ge=0,
            le=3_600,
            description="Tolerance for times in tokens.",
            json_schema_extra={
                "unit": "seconds",
                "kafka": "sasl.oauthbearer.clock.skew.seconds",
            },
        ),
    ] = 30


class LdapSettings(Section):
    """LDAP directory that verifies passwords, for `security.plain_verifier` `ldap`."""

    url: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=TEXT_MAX,
            description="Address of the directory: `ldaps://host`, or `ldap://host` with "
            "`start_tls`.",
        ),
    ] = None
    start_tls: Annotated[
        bool, Field(description="Switch an `ldap://` connection to TLS before the first bind.")
    ] = False
    ca_file: Annotated[
        str | None,
        Field(min_length=1, description="Certificate authorities; unset: the system's."),
    ] = None
    user_dn_template: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=TEXT_MAX,
            description="Name of a user's entry, with `{user}`: "
            "`uid={user},ou=people,dc=example,dc=org`. Unset: the broker searches for the entry.",
        ),
    ] = None
    search_base: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=TEXT_MAX,
            description="Entry below which the broker searches for users, without a template.",
        ),
    ] = None
    search_filter: Annotated[
        str,
        Field(
            min_length=1,
            max_length=TEXT_MAX,
            description="Filter of the search; `{user}` is the name that the client sent.",
        ),
    ] = "(uid={user})"
    bind_dn: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=TEXT_MAX,
            description="Entry that the broker binds as for the search; unset: anonymous search.",
        ),
    ] = None
    bind_password_file: Annotated[
        str | None,
        Field(min_length=1, description="File with the password of `bind_dn`."),
    ] = None
    principal_attribute: Annotated[
        str,
        Field(
            min_length=1,
            max_length=255,
            description="Attribute of the entry that is the name of the principal.",
        ),
    ] = "uid"
    timeout_seconds: Annotated[
        float,
        Field(
            gt=0,
            le=60,
            allow_inf_nan=False,
            description="An answer of the directory must arrive within this time.",
            json_schema_extra={"unit": "seconds"},
        ),
    ] = 3.0
