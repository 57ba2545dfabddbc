"""A setting is found by each of its names, and a near miss is suggested."""

import pytest

from penstock.core.settings.setting_names import closest_names, find_keys, is_live
from penstock.core.settings.tree import FIELDS


@pytest.mark.parametrize(
    "name",
    [
        "topic_defaults.retention_ms",
        "topics.retention_ms",
        "PENSTOCK_TOPIC_DEFAULTS__RETENTION_MS",
        "penstock_topics__retention_ms",
        "log.retention.ms",
    ],
)
def test_every_name_leads_to_the_key(name: str) -> None:
    assert find_keys(name) == ["topic_defaults.retention_ms"]


def test_a_section_and_a_shared_name_lead_to_several() -> None:
    assert find_keys("flush") == ["flush.mode", "flush.interval_ms"]
    assert find_keys("listeners") == ["listener.host", "listener.port"]
    assert find_keys("zebra") == []


@pytest.mark.parametrize(
    ("miss", "hit"),
    [
        ("listener.prot", "listener.port"),
        ("PENSTOCK_LISTENER__PROT", "PENSTOCK_LISTENER__PORT"),
        ("log.retentoin.ms", "log.retention.ms"),
    ],
)
def test_a_near_miss_is_suggested_in_its_own_way_of_naming(miss: str, hit: str) -> None:
    assert hit in closest_names(miss)


def test_nothing_is_suggested_for_nonsense() -> None:
    assert closest_names("zebra-crossing") == []


def test_what_cannot_change_while_a_broker_runs() -> None:
    """Exactly these, and identity, access and the cluster as a whole."""
    fixed = {key for key in FIELDS if not is_live(key)}
    sections = ("security.", "tls.", "oidc.", "ldap.", "cluster.")
    secured = {key for key in FIELDS if key.startswith(sections)}
    assert secured <= fixed
    assert fixed - secured == {
        "node.id",
        "node.rack",
        "node.data_dir",
        "node.storage",
        "node.uvloop",
        "listener.host",
        "listener.port",
        "listener.advertised_host",
        "listener.advertised_port",
        "flush.mode",
        "groups.offsets_partitions",
        "groups.offsets_segment_bytes",
        "groups.share_enabled",
        "groups.share_sessions_max",
        "transactions.state_partitions",
        "transactions.state_segment_bytes",
        "shares.state_partitions",
        "shares.state_segment_bytes",
        "shares.write_timeout_ms",
        "quotas.window_count",
        "quotas.window_seconds",
        "quotas.controller_window_count",
        "quotas.controller_window_seconds",
        "admin.enabled",
        "admin.host",
        "admin.port",
        "admin.allowed_hosts",
        "admin.auth",
        "admin.metrics_open",
        "admin.certificate",
        "admin.key",
        "admin.client_ca",
        "admin.principal_mapping_rules",
        "edge.host",
        "edge.push_port",
        "edge.socket_path",
        "edge.http_port",
        "edge.grpc_message_bytes_max",
        "edge.grpc_port",
        "edge.allowed_origins",
        "edge.allowed_hosts",
        "edge.listener",
        "registry.url",
        "registry.node_id",
        "registry.role",
        "registry.labels",
        "registry.token_file",
        "registry.join_token_file",
        "registry.ca",
        "registry.certificate",
        "registry.key",
        "registry.serve_port",
        "registry.serve_host",
        "registry.serve_certificate",
        "registry.serve_key",
        "registry.serve_client_ca",
        "registry.serve_allowed_hosts",
    }
