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
            description="Push connections at one time from one address.",
            json_schema_extra={"unit": "connections", "live": True},
        ),
    ] = 12_000

    @property
    def has_push(self) -> bool:
        """Whether push clients can connect."""
        return self.push_port is not None or self.socket_path is not None
