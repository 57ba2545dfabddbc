"""The tree of settings: each with its type, range, default, unit and meaning.

Frozen and strict: a value of the wrong type is refused, not converted. Bounds and defaults that the
code itself needs come from `limits`. `settings.config` reads values from files, environment and
flags. Settings marked `live` can change while a broker runs; `settings.live_settings` applies the
changes. Not the table of topic settings: those belong to a topic and are changed over the wire or
declared in `[[topics]]`; `[topic_defaults]` has the values of topics whose creator sets none.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Final, Literal

from pydantic import Field
from pydantic.fields import FieldInfo

from penstock.core import limits
from penstock.core.settings.admin_settings import AdminSettings
from penstock.core.settings.cluster_settings import ClusterSettings
from penstock.core.settings.coordinator_settings import GroupsSettings, TransactionsSettings
from penstock.core.settings.edge_settings import EdgeSettings
from penstock.core.settings.listener_declarations import NamedListener
from penstock.core.settings.pipe_declarations import PipeDeclaration
from penstock.core.settings.quota_settings import QuotasSettings
from penstock.core.settings.registry_settings import RegistrySettings
from penstock.core.settings.security_settings import (
    LdapSettings,
    OidcSettings,
    SecuritySettings,
    TlsSettings,
)
from penstock.core.settings.settings_section import Section
from penstock.core.settings.share_coordinator_settings import SharesSettings
from penstock.core.types import PLAINTEXT


class NodeSettings(Section):
    """What this broker is and where it keeps its data."""

    id: Annotated[
        int,
        Field(
            ge=0,
            le=2**31 - 1,
            description="Number of this broker in its cluster; fixed once data was written.",
            json_schema_extra={"kafka": "node.id"},
        ),
    ] = 1
    rack: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=255,
            description="Rack or zone of this broker: replicas are placed in different ones.",
            json_schema_extra={"kafka": "broker.rack"},
        ),
    ] = None
    data_dir: Annotated[
        str,
        Field(
            min_length=1,
            description="Directory of the log and of the metadata; created if it does not exist.",
            json_schema_extra={"kafka": "log.dirs"},
        ),
    ] = "penstock-data"
    storage: Annotated[
        Literal["disk", "memory"],
        Field(
            description="Where the log lives. `memory` forgets everything when the broker stops.",
        ),
    ] = "disk"
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Field(
            description="Lowest level of messages that are written to standard error.",
            json_schema_extra={"live": True},
        ),
    ] = "info"
    uvloop: Annotated[
        bool, Field(description="Use the uvloop event loop; `false` takes the one of Python.")
    ] = True


class ListenerSettings(Section):
    """Where clients connect, and how much they may ask for at once."""

    host: Annotated[
        str,
        Field(
            description="Address to listen on. `localhost` listens on 127.0.0.1 and, where there "
            "is one, ::1; `0.0.0.0` on every address, and then `advertised_host` is needed.",
            json_schema_extra={"kafka": "listeners"},
        ),
    ] = "127.0.0.1"
    port: Annotated[
        int,
        Field(
            ge=0,
            le=65_535,
            description="Port to listen on; 0 takes a free one.",
            json_schema_extra={"kafka": "listeners"},
        ),
    ] = 9092
    advertised_host: Annotated[
        str | None,
        Field(
            min_length=1,
            description="Name or address that clients connect to; unset: `host`.",
            json_schema_extra={"kafka": "advertised.listeners"},
        ),
    ] = None
    advertised_port: Annotated[
        int | None,
        Field(
            ge=1,
            le=65_535,
            description="Port that clients connect to; unset: the port of the listener.",
            json_schema_extra={"kafka": "advertised.listeners"},
        ),
    ] = None
    connections_max: Annotated[
        int,
        Field(
            ge=1,
            description="Connections at one time; the next one is closed at once.",
            json_schema_extra={"unit": "connections", "kafka": "max.connections", "live": True},
        ),
    ] = limits.CONNECTIONS_MAX_DEFAULT
    connections_per_address_max: Annotated[
        int,
        Field(
            ge=1,
            description="Connections at one time from one address; an IPv6 address counts by "
            "its first 64 bits.",
            json_schema_extra={
                "unit": "connections",
                "kafka": "max.connections.per.ip",
                "live": True,
            },
        ),
    ] = limits.CONNECTIONS_MAX_DEFAULT
    request_bytes_in_flight_max: Annotated[
        int,
        Field(
            ge=1_048_576,
            description="Request bodies being received or handled, over all connections; reading "
            "pauses above. A single larger request is still taken when nothing else is in flight.",
            json_schema_extra={"unit": "bytes", "kafka": "queued.max.request.bytes", "live": True},
        ),
    ] = limits.REQUEST_BYTES_IN_FLIGHT_MAX_DEFAULT
    requests_in_flight_max: Annotated[
        int,
        Field(
            ge=1,
            description="Requests being handled, over all connections; reading pauses above. "
            "Fetches that wait for records do not count.",
            json_schema_extra={"unit": "requests", "kafka": "queued.max.requests", "live": True},
        ),
    ] = limits.REQUESTS_IN_FLIGHT_MAX_DEFAULT
    connection_idle_seconds_max: Annotated[
        float,
        Field(
            gt=0,
            allow_inf_nan=False,
            description="A connection without a request for this long is closed.",
            json_schema_extra={"unit": "seconds", "kafka": "connections.max.idle.ms", "live": True},
        ),
    ] = limits.CONNECTION_IDLE_SECONDS_MAX
    frame_completion_seconds_max: Annotated[
        float,
        Field(
            gt=0,
            allow_inf_nan=False,
            description="A request that was begun must be complete within this time.",
            json_schema_extra={"unit": "seconds", "live": True},
        ),
    ] = limits.FRAME_COMPLETION_SECONDS_MAX
    slow_reader_seconds_max: Annotated[
        float,
        Field(
            gt=0,
            allow_inf_nan=False,
            description="A client that takes nothing of a waiting answer for this long is "
            "disconnected.",
            json_schema_extra={"unit": "seconds", "live": True},
        ),
    ] = limits.SLOW_READER_SECONDS_MAX


class FlushSettings(Section):
    """When written records reach the disk."""

    mode: Annotated[
        Literal["always", "interval", "os"],
        Field(
            description="`always`: a record is on disk before it is acknowledged. `interval`: "
            "synced every `interval_ms`; a power cut loses up to that much. `os`: the kernel "
            "decides, as Kafka does by default.",
            json_schema_extra={"kafka": "log.flush.interval.messages"},
        ),
    ] = "always"
    interval_ms: Annotated[
        int,
        Field(
            ge=1,
            le=3_600_000,
            description="Time between syncs in the mode `interval`.",
            json_schema_extra={
                "unit": "milliseconds",
                "kafka": "log.flush.interval.ms",
                "live": True,
            },
        ),
    ] = 1_000


class TopicDefaultsSettings(Section):
    """What a topic gets when its creator does not say."""

    auto_create: Annotated[
        bool,
        Field(
            description="Create a topic when a client asks for one that does not exist.",
            json_schema_extra={"kafka": "auto.create.topics.enable", "live": True},
        ),
    ] = True
    partitions_default: Annotated[
        int,
        Field(
            ge=1,
            le=limits.PARTITIONS_PER_TOPIC_MAX,
            description="Partitions of a topic whose creator gave no number.",
            json_schema_extra={"unit": "partitions", "kafka": "num.partitions", "live": True},
        ),
    ] = 1
    segment_bytes: Annotated[
        int,
        Field(
            ge=1_048_576,
            le=2**31 - 1,
            description="A segment file is closed and a new one begun at this size.",
            json_schema_extra={"unit": "bytes", "kafka": "log.segment.bytes", "live": True},
        ),
    ] = 1_073_741_824
    retention_ms: Annotated[
        int,
        Field(
            ge=-1,
            le=2**63 - 1,
            description="Records older than this may be deleted; -1 keeps them for ever.",
            json_schema_extra={"unit": "milliseconds", "kafka": "log.retention.ms", "live": True},
        ),
    ] = 604_800_000
    retention_bytes: Annotated[
        int,
        Field(
            ge=-1,
            le=2**63 - 1,
            description="A partition larger than this loses its oldest segments; -1 sets no limit.",
            json_schema_extra={"unit": "bytes", "kafka": "log.retention.bytes", "live": True},
        ),
    ] = -1
    message_bytes_max: Annotated[
        int,
        Field(
            ge=0,
            le=limits.FRAME_BYTES_MAX,
            description="Largest record batch, as sent.",
            json_schema_extra={"unit": "bytes", "kafka": "message.max.bytes", "live": True},
        ),
    ] = limits.BATCH_BYTES_MAX_DEFAULT


class LogCareSettings(Section):
    """How often the log is looked after."""

    retention_check_interval_ms: Annotated[
        int,
        Field(
            ge=1,
            le=2**31 - 1,
            description="Time between two looks for segments that retention lets go.",
            json_schema_extra={
                "unit": "milliseconds",
                "kafka": "log.retention.check.interval.ms",
                "live": True,
            },
        ),
    ] = 300_000
    compaction_check_interval_ms: Annotated[
        int,
        Field(
            ge=1,
            le=2**31 - 1,
            description="Time between two looks for logs that are due for compaction.",
            json_schema_extra={
                "unit": "milliseconds",
                "kafka": "log.cleaner.backoff.ms",
                "live": True,
            },
        ),
    ] = 15_000
    checkpoint_interval_ms: Annotated[
        int,
        Field(
            ge=1,
            le=2**31 - 1,
            description="Time between two notes of how far logs are on disk; a start after a crash "
            "verifies what came later.",
            json_schema_extra={
                "unit": "milliseconds",
                "kafka": "log.flush.offset.checkpoint.interval.ms",
                "live": True,
            },
        ),
    ] = 60_000


class DiskSettings(Section):
    """When a filling disk stops produce. Fetch always goes on."""

    free_bytes_min: Annotated[
        int,
        Field(
            ge=0,
            description="Produce is refused while less than this is free; 0: no guard.",
            json_schema_extra={"unit": "bytes", "live": True},
        ),
    ] = 134_217_728
    free_percent_min: Annotated[
        float,
        Field(
            ge=0,
            lt=100,
            allow_inf_nan=False,
            description="Produce is refused while less than this share of the disk is free.",
            json_schema_extra={"unit": "percent", "live": True},
        ),
    ] = 0.0


class Settings(Section):
    """Every setting of one broker."""

    node: NodeSettings = NodeSettings()
    listener: ListenerSettings = ListenerSettings()
    flush: FlushSettings = FlushSettings()
    topic_defaults: TopicDefaultsSettings = TopicDefaultsSettings()
    log: LogCareSettings = LogCareSettings()
    groups: GroupsSettings = GroupsSettings()
    transactions: TransactionsSettings = TransactionsSettings()
    shares: SharesSettings = SharesSettings()
    disk: DiskSettings = DiskSettings()
    admin: AdminSettings = AdminSettings()
    quotas: QuotasSettings = QuotasSettings()
    security: SecuritySettings = SecuritySettings()
    tls: TlsSettings = TlsSettings()
    oidc: OidcSettings = OidcSettings()
    ldap: LdapSettings = LdapSettings()
    cluster: ClusterSettings = ClusterSettings()
    edge: EdgeSettings = EdgeSettings()
    registry: RegistrySettings = RegistrySettings()
    listeners: tuple[NamedListener, ...] = ()
    """Declared in `[[listeners]]`; they replace the address of `[listener]`."""
    pipes: tuple[PipeDeclaration, ...] = ()
    """Declared in `[[pipes]]`."""

    @property
    def all_listeners(self) -> tuple[NamedListener, ...]:
        """The declared listeners; without any, `[listener]` as the one listener PLAINTEXT."""
        one = self.listener
        return self.listeners or (
            NamedListener(
                name=PLAINTEXT,
                host=one.host,
                port=one.port,
                advertised_host=one.advertised_host,
                advertised_port=one.advertised_port,
                protocol=PLAINTEXT,
            ),
        )

    @property
    def host(self) -> str:
        """The address to listen on."""
        return self.listener.host

    @property
    def port(self) -> int:
        """The port to listen on; 0 takes a free one."""
        return self.listener.port

    @property
    def data_dir(self) -> str:
        """The directory of the log and of the metadata."""
        return self.node.data_dir


def _fields() -> Iterator[tuple[str, FieldInfo]]:
    for section_name, section in Settings.model_fields.items():
        model = section.annotation
        if not isinstance(model, type) or not issubclass(model, Section):
            continue  # declared listeners and pipes are tables of their own
        for name, field in model.model_fields.items():
            yield f"{section_name}.{name}", field


FIELDS: Final[Mapping[str, FieldInfo]] = dict(_fields())
"""Every setting by its key, such as `listener.port`, in the order of the tree."""


def flat_values(settings: Settings) -> dict[str, object]:
    """Return the values of a tree by key."""
    return {
        key: getattr(getattr(settings, section), name)
        for key in FIELDS
        for section, _, name in [key.partition(".")]
    }


def settings_of(
    values: Mapping[str, object],
    listeners: tuple[NamedListener, ...] = (),
    pipes: tuple[PipeDeclaration, ...] = (),
) -> Settings:
    """Return the tree of a flat table; missing keys have their defaults."""
    tree: dict[str, object] = {"listeners": listeners} if listeners else {}
    tree |= {"pipes": pipes} if pipes else {}
    sections: dict[str, dict[str, object]] = {}
    for key, value in values.items():
        section, _, name = key.partition(".")
        sections.setdefault(section, {})[name] = value
    return Settings.model_validate(tree | sections)
