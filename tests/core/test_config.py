"""Settings: the order of the three layers, every kind of problem, and the flat constructor."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from penstock.core.errors import ConfigError
from penstock.core.settings.config import (
    BrokerConfig,
    describe_sections,
    describe_settings,
    load_settings,
)
from penstock.core.settings.setting_names import closest_keys, environment_name
from penstock.core.settings.tree import FIELDS, Settings, flat_values


def problems(
    toml_text: str = "",
    environment: dict[str, str] | None = None,
    flags: dict[str, object] | None = None,
) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        load_settings(toml_text, environment or {}, flags or {}, "penstock.toml")
    return str(raised.value).splitlines()


def test_nothing_given_is_the_defaults() -> None:
    loaded = load_settings(None, {}, {})
    assert loaded.settings == Settings()
    assert set(loaded.sources.values()) == {"default"}
    assert (loaded.settings.host, loaded.settings.port) == ("127.0.0.1", 9092)
    assert loaded.settings.data_dir == "penstock-data"
    assert loaded.settings.flush.mode == "always"


def test_each_layer_overrides_the_one_before() -> None:
    toml_text = "[listener]\nport = 1\nhost = '127.0.0.8'\n\n[node]\nid = 7\n"
    environment = {"PENSTOCK_LISTENER__PORT": "2", "PENSTOCK_LISTENER__HOST": "127.0.0.9"}
    loaded = load_settings(toml_text, environment, {"listener.port": 3}, "penstock.toml")
    assert loaded.value("listener.port") == 3
    assert loaded.value("listener.host") == "127.0.0.9"
    assert loaded.value("node.id") == 7
    assert loaded.sources["listener.port"] == "flag --port"
    assert loaded.sources["listener.host"] == "environment variable PENSTOCK_LISTENER__HOST"
    assert loaded.sources["node.id"] == "penstock.toml line 6"
    assert loaded.sources["node.storage"] == "default"


def test_a_flag_that_was_not_given_changes_nothing() -> None:
    loaded = load_settings("[listener]\nport = 1", {}, {"listener.port": None})
    assert loaded.settings.port == 1


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("false", False), ("1", True), ("off", False)]
)
def test_text_of_the_environment_is_converted(text: str, value: bool) -> None:
    loaded = load_settings(None, {"PENSTOCK_TOPIC_DEFAULTS__AUTO_CREATE": text}, {})
    assert loaded.settings.topic_defaults.auto_create is value


def test_an_empty_variable_unsets_what_may_be_unset() -> None:
    toml_text = "[listener]\nadvertised_host = 'a'\nadvertised_port = 5"
    environment = {
        "PENSTOCK_LISTENER__ADVERTISED_HOST": "",
        "PENSTOCK_LISTENER__ADVERTISED_PORT": "",
    }
    listener = load_settings(toml_text, environment, {}).settings.listener
    assert listener.advertised_host is None
    assert listener.advertised_port is None


def test_variables_that_kubernetes_makes_are_left_alone() -> None:
    environment = {"PENSTOCK_PORT": "tcp://10.0.0.1:9092", "PENSTOCK_SERVICE_HOST": "10.0.0.1"}
    assert load_settings(None, environment, {}).settings == Settings()


def test_an_unknown_key_is_named_with_line_and_remedy() -> None:
    (problem,) = problems("[listener]\n# a remark\nprt = 9093\n")
    assert problem.startswith("listener.prt (penstock.toml line 3) is not a setting.")
    assert "Did you mean listener.port" in problem


def test_the_value_of_an_unknown_key_is_not_shown() -> None:
    (problem,) = problems('[ldap]\nbind_password = "canary"\n')
    assert "ldap.bind_password_file" in problem
    assert "canary" not in problem
    (problem,) = problems(environment={"PENSTOCK_LDAP__BIND_PASSWORD": "canary"})
    assert "PENSTOCK_LDAP__BIND_PASSWORD_FILE" in problem
    assert "canary" not in problem


def test_a_key_in_the_wrong_section_finds_its_own() -> None:
    (problem,) = problems("port = 1\n")
    assert "Did you mean listener.port" in problem
    assert "penstock.toml line 1" in problem


def test_a_name_like_no_other_points_at_the_list() -> None:
    (problem,) = problems("[zebra]\nquagga = 1\n")
    assert problem.endswith("`penstock config explain` lists all settings.")


def test_an_unknown_variable_is_named_with_the_right_one() -> None:
    (problem,) = problems(environment={"PENSTOCK_LISTENER__PORTS": "1"})
    assert problem.startswith("PENSTOCK_LISTENER__PORTS (environment) is not a setting.")
    assert "PENSTOCK_LISTENER__PORT" in problem


@pytest.mark.parametrize(
    "line",
    ['port = "9092"', "port = true", "port = 9092.0", "port = 65536", "port = -1"],
)
def test_a_file_value_has_its_type_and_range(line: str) -> None:
    (problem,) = problems(f"[listener]\n{line}\n")
    assert problem.startswith("listener.port = ")
    assert "(penstock.toml line 2)" in problem
    assert "penstock config explain listener.port" in problem


def test_an_integer_is_a_number_of_seconds() -> None:
    loaded = load_settings("[listener]\nconnection_idle_seconds_max = 5", {}, {})
    assert loaded.settings.listener.connection_idle_seconds_max == 5.0


def test_seconds_are_finite() -> None:
    assert problems("[listener]\nconnection_idle_seconds_max = inf\n")


def test_a_choice_lists_what_there_is() -> None:
    (problem,) = problems("[flush]\nmode = 'never'\n")
    assert "'always', 'interval' or 'os'" in problem


def test_all_problems_come_together() -> None:
    found = problems(
        "[listener]\nport = 'x'\n",
        {"PENSTOCK_NODE__ID": "q"},
        {"node.storage": "tape"},
    )
    assert [line.split(" = ")[0] for line in found] == ["listener.port", "node.id", "node.storage"]
    assert "flag --storage" in found[2]


@pytest.mark.parametrize(
    "value",
    ["9" * 5_000, "0x" + "f" * 5_000, "[" * 5_000 + "]" * 5_000],
    ids=["decimal", "hexadecimal", "nested"],
)
def test_a_value_that_python_cannot_read_is_a_problem_as_any_other(value: str) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_settings(f"[listener]\nport = {value}\n", {}, {}, "penstock.toml")


@pytest.mark.parametrize("name", ["retention_ms", "retention_bytes"])
def test_retention_is_a_number_of_64_bits(name: str) -> None:
    most = load_settings(f"[topic_defaults]\n{name} = {2**63 - 1}\n", {}, {})
    assert getattr(most.settings.topic_defaults, name) == 2**63 - 1
    with pytest.raises(ConfigError, match=f"topic_defaults.{name}"):
        load_settings(f"[topic_defaults]\n{name} = {2**63}\n", {}, {})


def test_a_file_that_is_not_toml() -> None:
    (problem,) = problems("[listener\n")
    assert problem.startswith("penstock.toml is not TOML:")
    assert "line 1" in problem


def test_a_section_that_is_a_value() -> None:
    (problem,) = problems("listener = 3\n")
    assert problem.startswith("listener (penstock.toml line 1) is not a setting.")


def test_a_wildcard_host_needs_an_advertised_one() -> None:
    unreachable, insecure = problems(flags={"listener.host": "0.0.0.0"})
    assert "listener.advertised_host" in unreachable
    assert "security.allow_insecure" in insecure
    advertised = {"listener.host": "0.0.0.0", "listener.advertised_host": "broker.example"}
    loaded = load_settings(None, {}, {**advertised, "security.allow_insecure": True})
    assert loaded.settings.listener.advertised_host == "broker.example"


def test_settings_are_frozen() -> None:
    settings = Settings()
    with pytest.raises(ValidationError, match="frozen"):
        settings.listener.port = 1


def test_flat_keywords_fill_the_tree(tmp_path: Path) -> None:
    config = BrokerConfig(
        host="::1",
        port=0,
        data_dir=tmp_path,
        max_connections=10,
        segment_size=2_097_152,
        storage="memory",
        default_partitions=3,
    )
    assert isinstance(config, Settings)
    assert (config.host, config.port, config.data_dir) == ("::1", 0, str(tmp_path))
    assert config.listener.connections_max == 10
    assert config.topic_defaults.segment_bytes == 2_097_152
    assert config.topic_defaults.partitions_default == 3
    assert config.node.storage == "memory"


def test_a_flat_keyword_wins_over_the_tree_it_is_given() -> None:
    loaded = load_settings("[listener]\nport = 1\nhost = '127.0.0.8'", {}, {})
    config = BrokerConfig(port=2, settings=loaded.settings)
    assert (config.port, config.host) == (2, "127.0.0.8")


def test_flat_keywords_are_checked() -> None:
    with pytest.raises(ConfigError, match=r"listener\.port = 70000"):
        BrokerConfig(port=70_000)
    with pytest.raises(ConfigError, match="advertised_host"):
        BrokerConfig(host="0.0.0.0")


def test_keywords_of_files_switch_tls_on() -> None:
    config = BrokerConfig(port=0, tls_cert="broker.crt", tls_key=Path("broker.key"))
    (listener,) = config.listeners
    assert (listener.protocol, listener.host, listener.port) == ("SSL", "127.0.0.1", 0)
    assert listener.tls is not None
    assert (listener.tls.certificate, listener.tls.key) == ("broker.crt", "broker.key")
    assert listener.tls.client_auth == "none"


def test_a_client_authority_requires_certificates_of_clients() -> None:
    config = BrokerConfig(enable_tls=True, tls_cert="a.crt", tls_key="a.key", tls_ca="ca.crt")
    (listener,) = config.listeners
    assert listener.tls is not None
    assert (listener.tls.client_auth, listener.tls.client_ca) == ("required", "ca.crt")


def test_keywords_of_access_and_metrics() -> None:
    config = BrokerConfig(metrics_port=0, log_level="debug", enable_acl=True, acl_config="acl.json")
    assert (config.admin.enabled, config.admin.port) == (True, 0)
    assert config.node.log_level == "debug"
    assert (config.security.authorizer, config.security.acl_file) == ("acl", "acl.json")
    assert BrokerConfig(enable_acl=False, enable_consumer_groups=True).security.authorizer == "none"


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"enable_tls": True}, "tls_cert is missing"),
        ({"tls_cert": "a.crt"}, "tls_key is missing"),
        ({"enable_tls": False, "tls_cert": "a", "tls_key": "b"}, "enable_tls=False with files"),
        ({"enable_consumer_groups": False}, "always serves groups"),
        ({"admin_port": 1, "metrics_port": 2}, "name one port"),
        ({"tls_cert": "a", "tls_key": "b", "port": 70_000}, "listener.port = 70000"),
        ({"log_level": "loud"}, "node.log_level"),
        # Neither may silently be a listener without TLS, or a broker without access rules.
        ({"tls_cert": "", "tls_key": ""}, "tls_cert is missing"),
        ({"tls_cert": "a", "tls_key": "b", "tls_ca": ""}, "tls_ca names no file"),
        ({"enable_tls": False, "tls_cert": ""}, "enable_tls=False with files"),
        ({"acl_config": "acl.json"}, "Pass enable_acl=True"),
        ({"enable_acl": False, "acl_config": "acl.json"}, "Pass enable_acl=True"),
        ({"enable_acl": "yes"}, "neither True nor False"),
    ],
)
def test_contradictory_keywords_name_a_remedy(keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        BrokerConfig(**keywords)


def test_keywords_of_a_tree_with_rules_and_an_advertised_address() -> None:
    text = (
        "[listener]\nadvertised_host = 'broker.example.com'\nadvertised_port = 9\n"
        "[security]\nauthorizer = 'acl'\nsuper_users = 'User:a'"
    )
    loaded = load_settings(text, {}, {}).settings
    config = BrokerConfig(settings=loaded, tls_cert="a", tls_key="b", acl_config="acl.json")
    (listener,) = config.listeners
    assert (listener.advertised_host, listener.advertised_port) == ("broker.example.com", 9)
    assert (config.security.authorizer, config.security.acl_file) == ("acl", "acl.json")


def test_tls_keywords_do_not_replace_declared_listeners() -> None:
    text = "[[listeners]]\nname = 'A'\nport = 0\nprotocol = 'PLAINTEXT'"
    loaded = load_settings(text, {}, {})
    with pytest.raises(ConfigError, match="the settings declare listeners"):
        BrokerConfig(settings=loaded.settings, tls_cert="a", tls_key="b")


def test_every_setting_says_what_it_is() -> None:
    described = describe_settings()
    assert [info.key for info in described] == list(FIELDS)
    for info in described:
        assert info.description.endswith("."), info.key
        assert info.environment_name == environment_name(info.key)
        assert info.type_text
    # A name that ends in a unit and a unit that says otherwise would mislead.
    for info in described:
        if info.key.endswith(("_bytes", "bytes_max", "bytes_min")):
            assert info.unit == "bytes", info.key
        if info.key.endswith("_ms"):
            assert info.unit == "milliseconds", info.key
    assert set(describe_sections()) == {
        "node",
        "listener",
        "flush",
        "topic_defaults",
        "quotas",
        "log",
        "groups",
        "transactions",
        "shares",
        "disk",
        "admin",
        "security",
        "tls",
        "oidc",
        "ldap",
        "cluster",
        "edge",
        "registry",
    }


def test_defaults_pass_their_own_checks() -> None:
    flags = {key: value for key, value in flat_values(Settings()).items() if value is not None}
    assert load_settings(None, {}, flags).settings == Settings()


def test_closest_keys_are_best_first() -> None:
    assert closest_keys("listener.prot")[0] == "listener.port"
    assert closest_keys("retention_ms") == ["topic_defaults.retention_ms"]
