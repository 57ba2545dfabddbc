"""`[edge]`: the addresses for push clients. Without an address, no part of push is loaded."""

from typing import Annotated

from pydantic import Field

from penstock.core.settings.settings_section import Section


class EdgeSettings(Section):
    """Push delivery: where its clients connect, and how many there may be."""

    host: Annotated[
        str,
        Field(min_length=1, description="Address to listen on for push clients."),
    ] = "127.0.0.1"
    push_port: Annotated[
        int | None,
        Field(
            ge=0,
            le=65_535,
            description="Port for push clients, usually 9095; 0 selects a free one. Unset: push is "
            "not served over TCP.",
        ),
    ] = None
    socket_path: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=107,
            description="Path of a unix socket for push clients of this machine; only the user of "
            "the broker may connect to it. Unset: there is none.",
        ),
    ] = None
    grpc_port: Annotated[
        int | None,
        Field(
            ge=0,
            le=65_535,
            description="Port for gRPC clients, usually 9096; 0 selects a free one. It needs "
            "the extra `grpc`. Unset: there is no gRPC.",
        ),
    ] = None
    grpc_message_bytes_max: Annotated[
        int,
        Field(
            ge=65_536,
            le=8_388_608,
            description="Largest message of a gRPC client. Messages of all calls and sessions have "
            "256 MiB, and each open session counts as one: 240 sessions by default, 1,000 with "
            "262144.",
            json_schema_extra={"unit": "bytes"},
        ),
    ] = 1_114_112
    http_port: Annotated[
        int | None,
        Field(
            ge=0,
            le=65_535,
            description="Port for clients over HTTP and WebSocket, usually 8081; 0 selects a free "
            "one. Unset: there is no such port.",
        ),
    ] = None
    catch_up_max: Annotated[
        int,
        Field(
            ge=1,
            le=10_000,
            description="Children that may read old records over HTTP pipes at the same time; the "
            "others wait. Records near the end of a log are always served.",
            json_schema_extra={"live": True},
        ),
    ] = 32
    allowed_origins: Annotated[
        tuple[str, ...],
        Field(
            max_length=64,
            description="Origins of web pages that may use `http_port`, such as "
            "`https://shop.example.com`, besides pages of this host; `*` allows every page.",
        ),
    ] = ()
    allowed_hosts: Annotated[
        tuple[str, ...],
        Field(
            max_length=64,
            description="Names that clients of `http_port` may use for this host, besides "
            "addresses, `localhost` and the advertised hosts; `*` allows every name. It keeps web "
            "pages out.",
        ),
    ] = ()
    listener: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=64,
            description="Name of the listener in `[[listeners]]` whose TLS files, mechanisms and "
            "identities push clients use; unset: the first listener.",
        ),
    ] = None
    sessions_max: Annotated[
        int,
        Field(
            ge=1,
            description="Push connections at one time; the next one is closed at once.",
            json_schema_extra={"unit": "connections", "live": True},
        ),
    ] = 12_000
    sessions_per_address_max: Annotated[
        int,
        Field(
            ge=1,
            description="Push connections at one time from one address; an IPv6 address counts "
            "by its first 64 bits. Raise it where many clients come through one proxy.",
            json_schema_extra={"unit": "connections", "live": True},
        ),
    ] = 1_000
    sessions_per_principal_max: Annotated[
        int,
        Field(
            ge=1,
            description="Push connections at one time of one principal that proved its identity. "
            "Anonymous clients, and clients with the fixed identity of a listener, count for "
            "their address only.",
            json_schema_extra={"unit": "connections", "live": True},
        ),
    ] = 1_000

    @property
    def has_push(self) -> bool:
        """Whether push clients can connect."""
        return self.push_port is not None or self.socket_path is not None
