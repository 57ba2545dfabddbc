"""Every value of the metadata store: JSON in UTF-8 with a schema version in `v`.

Each kind has one function that writes it and one that reads it; reading a written value returns an
equal one. A value with a higher, unknown version is rejected: an older broker must not guess its
meaning. Unknown fields of a known version are ignored. `keys` has the key of each kind.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from penstock.cluster import partition_values
from penstock.cluster.features.levels import read_ranges
from penstock.cluster.image import (
    NO_SETTINGS,
    BrokerImage,
    BrokerState,
    ControllerImage,
    CreationImage,
    Endpoint,
    Mirror,
    NodeImage,
    ScramImage,
)
from penstock.core.errors import StoreError
from penstock.core.types import PLAINTEXT
from penstock.security.acls.filters import creation_problem
from penstock.security.acls.values import (
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from penstock.security.scram_credential import ScramCredential

_VERSION: Final = 1

_BROKER_VERSION: Final = 2
"""Version of registrations; 1 had no state."""

_FORMAT_VERSION: Final = 1
"""Version of the layout of keys."""


_STATES: Final = frozenset(state.value for state in BrokerState)


class TopicValue(NamedTuple):
    """The value of the publishing key of a topic."""

    id: UUID
    partition_count: int
    is_adopted: bool = False
    mirror: Mirror | None = None


class SetByFile(NamedTuple):
    """The settings of a topic from the settings file, at its last reconciliation."""

    topic_id: UUID
    settings: Mapping[str, str]
    replaced: Mapping[str, str] = NO_SETTINGS
    """The file's earlier settings, while it is unknown whether `settings` replaced them."""

    def gave(self, name: str, value: str) -> bool:
        """Return whether the file set this value, as far as is known."""
        return value in {self.settings.get(name), self.replaced.get(name)}


def write_format() -> bytes:
    """Encode the version of the layout that this code writes."""
    return _encode({"format": _FORMAT_VERSION})


def check_format(value: bytes) -> None:
    """Raise an error for a store whose layout is newer than this code."""
    found = _integer(_decode(value), "format")
    if found > _FORMAT_VERSION:
        raise StoreError(f"the metadata has layout {found}; this version reads {_FORMAT_VERSION}")


def write_cluster_id(cluster_id: str) -> bytes:
    """Encode the cluster's id."""
    return _encode({"id": cluster_id})


def read_cluster_id(value: bytes) -> str:
    """Return the cluster's id."""
    return _text(_decode(value), "id")


def write_adopted() -> bytes:
    """Encode the mark that the logs have become topics: only its key matters."""
    return _encode({})


def write_topic(topic: TopicValue) -> bytes:
    """Encode a topic's id and number of partitions, and whether its logs existed before it."""
    fields: dict[str, object] = {"id": str(topic.id), "partitions": topic.partition_count}
    if topic.is_adopted:
        fields["adopted"] = True
    if topic.mirror is not None:
        fields["mirror"] = topic.mirror._asdict()
    return _encode(fields)


def read_topic(value: bytes) -> TopicValue:
    """Return a topic's id and number of partitions, and whether its logs existed before it."""
    fields = _decode(value)
    mark = fields.get("mirror")
    mirror = None
    if isinstance(mark, dict):
        mirror = Mirror(_text(mark, "pipe"), mark.get("is_restoring") is True)
    return TopicValue(
        topic_id_of(_text(fields, "id")),
        _integer(fields, "partitions"),
        fields.get("adopted") is True,
        mirror,
    )


def write_name(topic_name: str) -> bytes:
    """Encode the topic that has one of several similar names."""
    return _encode({"name": topic_name})


@lru_cache(maxsize=8192)
def topic_id_of(text: str) -> UUID:
    """Return the topic id of a key or value."""
    # A topic's id is in its own value and in the keys of its partitions.
    try:
        return UUID(text)
    except ValueError as error:
        raise StoreError(f"{text!r} in the metadata store is not a topic id") from error


write_partition: Final = partition_values.write_partition
read_partition: Final = partition_values.read_partition


def write_settings(settings: Mapping[str, str]) -> bytes:
    """Encode the settings that a topic, a group or a broker overrides."""
    return _encode({"settings": dict(settings)})


def read_settings(value: bytes) -> Mapping[str, str]:
    """Return the settings that a topic, a group or a broker overrides."""
    return _settings(_decode(value).get("settings"))


def _settings(settings: object) -> Mapping[str, str]:
    if not isinstance(settings, dict) or not all(isinstance(v, str) for v in settings.values()):
        raise StoreError("settings in the metadata store are not a table of texts")
    return settings


def write_quotas(quotas: Mapping[str, float]) -> bytes:
    """Encode the quotas of a user, client id or address."""
    return _encode({"quotas": dict(quotas)})


def read_quotas(value: bytes) -> Mapping[str, float]:
    """Return the quotas of a user, client id or address."""
    quotas = _decode(value).get("quotas")
    if not isinstance(quotas, dict) or not all(_is_number(v) for v in quotas.values()):
        raise StoreError("quotas in the metadata store are not a table of numbers above 0")
    return {name: float(v) for name, v in quotas.items()}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def write_acl(acl: AclBinding) -> bytes:
    """Encode an access rule."""
    return _encode(
        {
            "resource_type": acl.resource_type.name,
            "name": acl.name,
            "pattern": acl.pattern_type.name,
            "principal": acl.principal,
            "host": acl.host,
            "operation": acl.operation.name,
            "permission": acl.permission.name,
        }
    )


def read_acl(value: bytes) -> AclBinding:
    """Return an access rule."""
    fields = _decode(value)
    acl = AclBinding(
        _member(ResourceType, fields, "resource_type"),
        _text(fields, "name"),
        _member(PatternType, fields, "pattern"),
        _text(fields, "principal"),
        _text(fields, "host"),
        _member(Operation, fields, "operation"),
        _member(Permission, fields, "permission"),
    )
    problem = creation_problem(acl)
    if problem is not None:
        raise StoreError(f"an access rule in the metadata store is invalid: {problem}")
    return acl


def write_acl_removal(acl_ids: Sequence[UUID]) -> bytes:
    """Encode the ids of access rules that are deleted together."""
    return _encode({"acls": [str(one) for one in acl_ids]})


def read_acl_removal(value: bytes) -> tuple[UUID, ...]:
    """Return the ids of access rules that are deleted together."""
    listed = _decode(value).get("acls")
    if not isinstance(listed, list):
        raise StoreError("a removal of access rules in the metadata store has no list of ids")
    return tuple([acl_id_of(str(one)) for one in listed])


def acl_id_of(text: str) -> UUID:
    """Return the id of an access rule, or of a removal, in a key or a value."""
    try:
        return UUID(text)
    except ValueError as error:
        raise StoreError(f"{text!r} in the metadata store is not the id of a rule") from error


def write_scram(credential: ScramCredential, created_ms: int) -> bytes:
    """Encode a credential: neither the password nor the salted password is in it."""
    return _encode(
        {
            "salt": base64.b64encode(credential.salt).decode(),
            "stored_key": base64.b64encode(credential.stored_key).decode(),
            "server_key": base64.b64encode(credential.server_key).decode(),
            "iterations": credential.iterations,
            "created_ms": created_ms,
        }
    )


def read_scram(value: bytes, revision: int) -> ScramImage:
    """Return the credential that was written at `revision`."""
    fields = _decode(value)
    credential = ScramCredential(
        _bytes(fields, "salt"),
        _bytes(fields, "stored_key"),
        _bytes(fields, "server_key"),
        _integer(fields, "iterations"),
    )
    return ScramImage(credential, _integer(fields, "created_ms"), revision)


def write_declared(given: SetByFile) -> bytes:
    """Encode the settings of a topic that came from the settings file."""
    fields: dict[str, object] = {"id": str(given.topic_id), "settings": dict(given.settings)}
    if given.replaced:
        fields["replaced"] = dict(given.replaced)
    return _encode(fields)


def read_declared(value: bytes) -> SetByFile:
    """Return the settings of a topic that came from the settings file."""
    fields = _decode(value)
    return SetByFile(
        topic_id_of(_text(fields, "id")),
        _settings(fields.get("settings")),
        _settings(fields.get("replaced", {})),
    )


def write_broker(broker: BrokerImage) -> bytes:
    """Encode a broker's registration, without its epoch, which is the revision of the write."""
    return _encode(
        {
            "endpoints": [
                {
                    "listener": one.listener,
                    "host": one.host,
                    "port": one.port,
                    "protocol": one.protocol,
                }
                for one in broker.endpoints
            ],
            "rack": broker.rack,
            "directory_id": broker.directory_id,
            "features": {one.name: [one.lowest, one.highest] for one in broker.features},
            "state": broker.state,
        },
        _BROKER_VERSION,
    )


def read_broker(value: bytes, broker_id: int, epoch: int, revision: int = 0) -> BrokerImage:
    """Return a broker that registered at revision `epoch` and last changed at `revision`."""
    fields = _decode(value, _BROKER_VERSION)
    rack = fields.get("rack")
    state = fields.get("state", BrokerState.RUNNING)
    if state not in _STATES:
        raise StoreError(f"a broker in the metadata store has the unknown state {state!r}")
    return BrokerImage(
        broker_id,
        _endpoints(fields),
        rack if isinstance(rack, str) else None,
        _text(fields, "directory_id"),
        epoch,
        BrokerState(state),
        revision,
        read_ranges(fields.get("features", {})),
    )


def write_node(directory_id: str) -> bytes:
    """Encode the data directory of a broker."""
    return _encode({"directory_id": directory_id})


def read_node(value: bytes, revision: int) -> NodeImage:
    """Return the data directory of a broker, in use since `revision`."""
    return NodeImage(_text(_decode(value), "directory_id"), revision)


def write_features(levels: Mapping[str, int]) -> bytes:
    """Encode the levels of features that the cluster uses."""
    return _encode({"levels": dict(levels)})


def read_features(value: bytes) -> Mapping[str, int]:
    """Return the levels of features that the cluster uses."""
    levels = _decode(value).get("levels")
    if not isinstance(levels, dict):
        raise StoreError("the features in the metadata store are not a table of levels")
    return {name: _integer(levels, name) for name in levels}


def _endpoints(fields: dict[str, object]) -> tuple[Endpoint, ...]:
    """Return the endpoints; the registration of an older broker has one address."""
    listed = fields.get("endpoints")
    if listed is None:
        return (Endpoint(PLAINTEXT, _text(fields, "host"), _integer(fields, "port")),)
    if not isinstance(listed, list) or not listed:
        raise StoreError("a broker in the metadata store has no list of endpoints")
    found = []
    for one in listed:
        if not isinstance(one, dict):
            raise StoreError("an endpoint in the metadata store is not a JSON object")
        found.append(
            Endpoint(
                _text(one, "listener"),
                _text(one, "host"),
                _integer(one, "port"),
                _text(one, "protocol"),
            )
        )
    return tuple(found)


def write_controller(broker_id: int, broker_epoch: int) -> bytes:
    """Encode the broker that controls the cluster."""
    return _encode({"broker": broker_id, "epoch": broker_epoch})


def read_controller(value: bytes, revision: int) -> ControllerImage:
    """Return the broker that controls the cluster since `revision`."""
    fields = _decode(value)
    return ControllerImage(_integer(fields, "broker"), _integer(fields, "epoch"), revision)


def write_creation(broker_id: int) -> bytes:
    """Encode the broker that writes many partitions of a topic."""
    return _encode({"broker": broker_id})


def read_creation(value: bytes, revision: int) -> CreationImage:
    """Return the broker that writes many partitions of a topic since `revision`."""
    return CreationImage(_integer(_decode(value), "broker"), revision)


def write_next_producer_id(next_producer_id: int) -> bytes:
    """Encode the first unused producer id."""
    return _encode({"next": next_producer_id})


def read_next_producer_id(value: bytes) -> int:
    """Return the first unused producer id."""
    return _integer(_decode(value), "next")


def _encode(fields: Mapping[str, object], version: int = _VERSION) -> bytes:
    return json.dumps({"v": version, **fields}, separators=(",", ":")).encode()


def _decode(value: bytes, version_max: int = _VERSION) -> dict[str, object]:
    try:
        fields = json.loads(value.decode())
    except (ValueError, RecursionError) as error:
        raise StoreError(f"a value in the metadata store is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise StoreError("a value in the metadata store is not a JSON object")
    version = _integer(fields, "v")
    if version > version_max:
        raise StoreError(
            f"a value in the metadata store has version {version}, this version of Penstock reads "
            f"{version_max}: it needs a newer Penstock"
        )
    return fields


def _integer(fields: Mapping[str, object], name: str) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise StoreError(f"a value in the metadata store lacks the number {name!r}")
    return value


def _text(fields: Mapping[str, object], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise StoreError(f"a value in the metadata store lacks the text {name!r}")
    return value


def _bytes(fields: Mapping[str, object], name: str) -> bytes:
    try:
        return base64.b64decode(_text(fields, name), validate=True)
    except ValueError as error:
        # Without the value: it is a secret.
        raise StoreError(f"{name!r} in the metadata store is not base64") from error


Member = TypeVar("Member", bound=IntEnum)


def _member(kind: type[Member], fields: Mapping[str, object], name: str) -> Member:
    text = _text(fields, name)
    try:
        return kind[text]
    except KeyError as error:
        raise StoreError(
            f"an access rule in the metadata store has the {name} {text!r}: it needs a newer "
            "Penstock"
        ) from error
