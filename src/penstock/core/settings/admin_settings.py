"""`[admin]`: the HTTP port for metrics, health and administration."""

from typing import Annotated, Final, Literal

from pydantic import Field

from penstock.core.settings.settings_section import Section

ADMIN_PORT_DEFAULT: Final = 8080
"""The port if none is set."""


class AdminSettings(Section):
    """The port for operators: metrics, health, REST."""

    enabled: Annotated[
        bool, Field(description="Serve metrics, health and the REST API over HTTP.")
    ] = True
    host: Annotated[
        str,
        Field(
            min_length=1,
            description="Address to listen on.",
        ),
    ] = "127.0.0.1"
    port: Annotated[
        int | None,
        Field(
            ge=0,
            le=65_535,
            description="Port to listen on; 0 takes a free one. Unset: 8080, and when that is "
            "taken the broker says so and runs without.",
        ),
    ] = None
    allowed_hosts: Annotated[
        str | None,
        Field(
            min_length=1,
            description="Names, with commas, that requests to the REST API may use for this host, "
            "besides addresses and `localhost`; `*` allows every name. It keeps web pages out.",
        ),
    ] = None
    auth: Annotated[
        Literal["none", "basic", "bearer", "mtls"],
        Field(
            description="How callers prove their identity: `basic` with user and password, as for "
            "the mechanism PLAIN; `bearer` with a token, as for OAUTHBEARER; `mtls` with a "
            "certificate. Each caller has its own rights. `none`: each caller is "
            "`User:ANONYMOUS`, for loopback addresses.",
        ),
    ] = "none"
    metrics_open: Annotated[
        bool,
        Field(description="Serve /metrics to callers without an identity too."),
    ] = False
    certificate: Annotated[
        str | None,
        Field(min_length=1, description="Certificate of this port in PEM; unset: no TLS."),
    ] = None
    key: Annotated[
        str | None,
        Field(min_length=1, description="Private key of the certificate, in PEM."),
    ] = None
    client_ca: Annotated[
        str | None,
        Field(
            min_length=1,
            description="Certificate authorities of callers, in PEM, for `auth` `mtls`.",
        ),
    ] = None
    principal_mapping_rules: Annotated[
        str,
        Field(
            min_length=1,
            max_length=4_096,
            description="How a caller's certificate becomes a principal, for `auth` `mtls`; the "
            "same rules as those of the listeners give a client one identity everywhere.",
            json_schema_extra={"kafka": "ssl.principal.mapping.rules"},
        ),
    ] = "DEFAULT"
