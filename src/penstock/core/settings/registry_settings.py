"""`[registry]`: the registry of sites that this broker follows, or runs itself."""

from typing import Annotated, Final, Literal

from pydantic import Field

from penstock.core.settings.settings_section import Section

LABELS_MAX: Final = 32
PARENT_OF_REGISTRY: Final = "registry"
"""`parent` of a pipe whose address and topics the registry chooses."""


class RegistrySettings(Section):
    """The registry of sites: the place of this broker in a tree of brokers."""

    url: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=2_048,
            description="URL of the registry, such as https://registry.example.com:8070; unset: "
            "this broker is not part of a tree.",
        ),
    ] = None
    node_id: Annotated[
        str | None,
        Field(
            pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$",
            description="Name of this broker in the registry, such as `store-17`; unset: `node-` "
            "and `node.id`.",
        ),
    ] = None
    role: Annotated[
        Literal["ROOT", "L2", "L3", "POS", "LOCAL"] | None,
        Field(
            description="Role that this broker asks for; unset: `LOCAL`. An operator assigns ROOT, "
            "L2 and L3, and an assigned role wins.",
        ),
    ] = None
    labels: Annotated[
        tuple[str, ...],
        Field(
            max_length=LABELS_MAX,
            description="Labels of this broker, such as `region=north`; parents are of the same "
            "region.",
        ),
    ] = ()
    poll_interval_ms: Annotated[
        int,
        Field(
            ge=100,
            le=3_600_000,
            description="Time between two polls of the registry, give or take 20 %.",
            json_schema_extra={"unit": "milliseconds", "live": True},
        ),
    ] = 30_000
    token_file: Annotated[
        str | None,
        Field(
            min_length=1,
            description="File with the key of this broker, a random text; unset: "
            "`registry.token` in the data directory, created at the first start.",
        ),
    ] = None
    join_token_file: Annotated[
        str | None,
        Field(
            min_length=1,
            description="File with the join token of the registry, which lets new nodes in.",
        ),
    ] = None
    ca: Annotated[
        str | None,
        Field(
            min_length=1,
            description="Certificate authorities of the registry, in PEM; unset: those of the "
            "system.",
        ),
    ] = None
    certificate: Annotated[
        str | None,
        Field(
            min_length=1,
            description="Client certificate, in PEM; it is the key of this broker then.",
        ),
    ] = None
    key: Annotated[
        str | None,
        Field(min_length=1, description="Private key of the client certificate, in PEM."),
    ] = None

    serve_port: Annotated[
        int | None,
        Field(
            ge=0,
            le=65_535,
            description="Port of a registry in this broker, which is a ROOT of the tree then; 0 "
            "takes a free one. Unset: this broker runs no registry.",
        ),
    ] = None
    serve_host: Annotated[
        str,
        Field(min_length=1, description="Address of the registry in this broker."),
    ] = "127.0.0.1"
    serve_certificate: Annotated[
        str | None,
        Field(
            min_length=1,
            description="Certificate of the registry in this broker, in PEM; unset: no TLS.",
        ),
    ] = None
    serve_key: Annotated[
        str | None,
        Field(min_length=1, description="Private key of `serve_certificate`, in PEM."),
    ] = None
    serve_client_ca: Annotated[
        str | None,
        Field(
            min_length=1,
            description="Authorities of the certificates of nodes, in PEM; unset: nodes have "
            "tokens.",
        ),
    ] = None
    serve_allowed_hosts: Annotated[
        str | None,
        Field(
            min_length=1,
            description="Names, with commas, that requests may use for the registry in this "
            "broker, besides addresses.",
        ),
    ] = None

    @property
    def label_map(self) -> dict[str, str]:
        """The labels by name."""
        pairs = (text.partition("=") for text in self.labels)
        return {name.strip(): value.strip() for name, _, value in pairs}
