"""`[cluster]`: addresses of etcd as a list, and settings that contradict each other."""

import pytest

from penstock.cli.config.text import shown, toml_lines
from penstock.core.errors import ConfigError
from penstock.core.settings.cluster_settings import ClusterSettings
from penstock.core.settings.config import load_settings
from penstock.core.settings.settings_changes import changed_settings, restart_reasons

ETCD = ("https://a:2379", "https://b:2379")
FILE = '[cluster]\netcd = ["https://a:2379", "https://b:2379"]\nlisten_port = 9091\n'


def problem(text: str) -> str:
    """The message about these settings; empty if they are accepted."""
    try:
        load_settings(text, {}, {})
    except ConfigError as error:
        return str(error)
    return ""


def test_addresses_are_a_list_in_a_file_and_commas_in_the_environment() -> None:
    assert load_settings(FILE, {}, {}).settings.cluster.etcd == ETCD
    variables = {
        "PENSTOCK_CLUSTER__ETCD": "https://a:2379, https://b:2379,",
        "PENSTOCK_CLUSTER__LISTEN_PORT": "9091",
    }
    loaded = load_settings(None, variables, {})
    assert loaded.settings.cluster.etcd == ETCD
    assert loaded.settings.cluster.is_set
    assert shown(loaded.value("cluster.etcd")) == "https://a:2379, https://b:2379"
    rows = [{"key": "cluster.etcd", "value": ETCD}]
    assert toml_lines(rows, ()) == '[cluster]\netcd = ["https://a:2379", "https://b:2379"]'


def test_a_broker_without_etcd_is_alone() -> None:
    alone = load_settings(None, {}, {}).settings.cluster
    assert not alone.is_set
    assert alone.root == "/penstock/default/"
    assert ClusterSettings(name="b").root == "/penstock/b/"


def test_text_is_not_a_list() -> None:
    assert "cluster.etcd = 'https://a'" in problem('[cluster]\netcd = "https://a"\n')


def test_another_etcd_needs_a_restart() -> None:
    before, after = load_settings(None, {}, {}).settings, load_settings(FILE, {}, {}).settings
    reasons = restart_reasons(changed_settings(before, after), {})
    assert "cluster.etcd = ['https://a:2379', 'https://b:2379']" in reasons[0]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ('[node]\nstorage = "memory"', "cannot be a replica"),
        ('[cluster]\nlisten_host = "0.0.0.0"', "Set cluster.advertised_host"),
        ('[cluster]\nlisten_host = "10.0.0.1"', "open to other machines without TLS"),
        ('[cluster]\ntls_key = "k"', "Set all of them, or none"),
        ('[cluster]\netcd_user = "u"', "cluster.etcd_password_file belong together"),
        ('[cluster]\netcd_key_file = "k"', "cluster.etcd_key_file belong together"),
        ('[cluster]\nname = "a/b"', "cluster.name"),
        ("[cluster]\nsession_seconds = 2.9", "cluster.session_seconds"),
        ("[cluster]\nsession_seconds = 60.5", "cluster.session_seconds"),
    ],
)
def test_settings_that_contradict_each_other(lines: str, words: str) -> None:
    section, _, line = lines.partition("\n")
    text = f"{FILE}{line}\n" if section == "[cluster]" else f"{FILE}{lines}\n"
    assert words in problem(text)
    # None of them is a contradiction in a broker that is alone.
    is_wrong_alone = words.startswith("cluster.") and "=" in problem(f"{lines}\n")
    assert is_wrong_alone or problem(f"{lines}\n") == ""


def test_a_port_for_other_brokers_is_required() -> None:
    assert "needs cluster.listen_port" in problem('[cluster]\netcd = ["http://a"]\n')
    assert problem('[cluster]\netcd = ["http://a"]\nlisten_port = 0\n') == ""


@pytest.mark.parametrize(
    ("addresses", "line", "words"),
    [
        ('["http://a", "https://b"]', "", "with and without TLS"),
        ('["http://a"]', 'etcd_ca_file = "ca"', "with https://"),
        ('["https://a"]', 'etcd_ca_file = "ca"', ""),
    ],
)
def test_certificates_of_etcd_need_tls(addresses: str, line: str, words: str) -> None:
    found = problem(f"[cluster]\netcd = {addresses}\nlisten_port = 1\n{line}\n")
    assert words in found
    assert bool(words) == bool(found)


def test_a_listener_for_brokers_with_tls_may_be_open() -> None:
    tls = 'tls_certificate = "c"\ntls_key = "k"\ntls_ca = "a"\nlisten_host = "10.0.0.1"\n'
    assert problem(FILE + tls) == ""
    assert problem(f'{FILE}listen_host = "10.0.0.1"\n[security]\nallow_insecure = true\n') == ""
