"""`[registry]`: contradictions, and the short names of the environment of a site."""

import pytest

from penstock.core.errors import ConfigError
from penstock.core.settings.config import load_settings
from penstock.core.settings.setting_names import find_keys, short_variable

URL = "https://registry.example.com:8070"


def test_labels() -> None:
    loaded = load_settings('[registry]\nlabels = ["region=north"]', {}, {})
    assert loaded.settings.registry.label_map == {"region": "north"}


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ('labels = ["north"]', "which is not a label"),
        ('certificate = "c.pem"', "belong together"),
        ('url = "registry:8070"', "is not a URL"),
        ('url = "https://user@registry"', "is not a URL"),
        ('url = "http://registry.example.com"', "without TLS"),
        ('node_id = "a b"', "registry.node_id"),
        ('role = "KING"', "registry.role"),
        ('[[pipes]]\nname = "hq"\nparent = "registry"\ntopics = ["*"]', "registry.url is not set"),
        ("poll_interval_ms = 1", "registry.poll_interval_ms"),
        ('url = "http://127.0.0.1:1"\n[node]\nstorage = "memory"', "forgets its topology"),
    ],
)
def test_problems(lines: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load_settings(f"[registry]\n{lines}", {}, {})


def test_the_url_of_this_machine_needs_no_tls() -> None:
    loaded = load_settings('[registry]\nurl = "http://localhost:8070"', {}, {})
    assert loaded.settings.registry.url == "http://localhost:8070"


def test_short_names_are_read_with_a_registry() -> None:
    given = {
        "REGISTRY_URL": URL,
        "NODE_ID": "local-001",
        "DATA_DIR": "data",
        "BROKER_PORT": "9099",
    }
    loaded = load_settings("", given, {})
    settings = loaded.settings
    assert (settings.registry.url, settings.registry.node_id) == (URL, "local-001")
    assert (settings.node.data_dir, settings.listener.port) == ("data", 9_099)
    assert settings.node.id == 1, "a name is not a number"
    assert loaded.sources["listener.port"] == "environment variable BROKER_PORT"
    assert "BROKER_PORT is read as PENSTOCK_LISTENER__PORT." in loaded.notes


def test_a_number_is_the_number_of_the_broker_too() -> None:
    settings = load_settings("", {"REGISTRY_URL": URL, "NODE_ID": "7"}, {}).settings
    assert (settings.node.id, settings.registry.node_id) == (7, "7")


def test_short_names_are_common_words_and_ignored_without_a_registry() -> None:
    given = {"NODE_ID": "x", "DATA_DIR": "elsewhere", "BROKER_PORT": "nonsense"}
    loaded = load_settings("", given, {})
    assert (loaded.settings.node.data_dir, loaded.notes) == ("penstock-data", ())


def test_the_full_name_wins() -> None:
    given = {
        "PENSTOCK_REGISTRY__URL": URL,
        "REGISTRY_URL": "https://other",
        "DATA_DIR": "short",
        "PENSTOCK_NODE__DATA_DIR": "full",
    }
    loaded = load_settings("", given, {})
    assert (loaded.settings.registry.url, loaded.settings.node.data_dir) == (URL, "full")
    assert "DATA_DIR is not read, because PENSTOCK_NODE__DATA_DIR is set." in loaded.notes


def test_a_wrong_value_names_its_variable() -> None:
    with pytest.raises(ConfigError, match="environment variable BROKER_PORT"):
        load_settings("", {"REGISTRY_URL": URL, "BROKER_PORT": "x"}, {})


def test_explain_finds_short_names() -> None:
    assert find_keys("REGISTRY_URL") == ["registry.url"]
    assert short_variable("node.data_dir") == "DATA_DIR"
    assert not short_variable("node.rack")
