"""`penstock config`: errors are reported, valid settings are shown with their source."""

import json
from pathlib import Path

import pytest

from penstock.core.settings.config import load_settings
from penstock.security.sasl.password_file import format_user, hash_password
from penstock.security.secret import Secret
from penstock.testing import Broker
from tests.cli.conftest import Penstock


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests switch the admin port off by the environment; here that would be a setting."""
    monkeypatch.delenv("PENSTOCK_ADMIN__ENABLED", raising=False)


@pytest.fixture
def good_file(tmp_path: Path) -> str:
    path = tmp_path / "penstock.toml"
    path.write_text("[listener]\nport = 9093\n\n[topic_defaults]\nauto_create = false\n")
    return str(path)


def test_check_shows_what_differs(
    penstock: Penstock, good_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_NODE__ID", "7")
    outcome = penstock("config", "check", good_file)
    assert outcome.code == 0
    lines = [line.split() for line in outcome.output.splitlines()]
    assert lines[1][:2] == ["node.id", "7"]
    assert lines[2][:2] == ["listener.port", "9093"]
    assert lines[3][:2] == ["topic_defaults.auto_create", "false"]
    assert "no problems, 3 settings given" in outcome.output


def test_check_as_json(penstock: Penstock, good_file: str) -> None:
    document = json.loads(penstock("config", "check", good_file, "--json").output)
    assert document["valid"] is True
    assert document["problems"] == []
    assert document["settings"][0] == {
        "key": "listener.port",
        "value": 9093,
        "source": f"{good_file} line 2",
    }


def test_check_fails_with_every_problem(penstock: Penstock, tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text("[listener]\nprt = 1\nport = 'x'\n")
    outcome = penstock("config", "check", str(path))
    assert outcome.code == 1
    assert outcome.output == ""
    assert len(outcome.errors.splitlines()) == 2
    assert "Did you mean listener.port" in outcome.errors
    as_json = penstock("config", "check", str(path), "--json")
    assert as_json.code == 1
    document = json.loads(as_json.output)
    assert document["valid"] is False
    assert len(document["problems"]) == 2


def test_check_of_what_is_no_text(penstock: Penstock, tmp_path: Path) -> None:
    path = tmp_path / "binary.toml"
    path.write_bytes(b"\xff\xfe")
    outcome = penstock("config", "check", str(path))
    assert outcome.code == 1
    assert "is not UTF-8 text" in outcome.errors


def test_check_of_a_file_that_is_missing(penstock: Penstock) -> None:
    outcome = penstock("config", "check", "nowhere.toml")
    assert outcome.code == 2
    assert "nowhere.toml" in outcome.errors


def test_explain_one_setting(penstock: Penstock, good_file: str) -> None:
    outcome = penstock("config", "explain", "listener.port", "--config", good_file)
    assert outcome.code == 0
    assert outcome.output.startswith("listener.port = 9093\n")
    assert f"{good_file} line 2" in outcome.output
    assert "PENSTOCK_LISTENER__PORT" in outcome.output
    assert "default:      9092" in outcome.output


def test_explain_as_json(penstock: Penstock) -> None:
    document = json.loads(penstock("config", "explain", "flush.interval_ms", "--json").output)
    assert document["unit"] == "milliseconds"
    assert document["value"] == document["default"] == 1000
    assert document["source"] == "default"


def test_explain_a_section_and_everything(penstock: Penstock) -> None:
    section = penstock("config", "explain", "flush").output
    assert "flush.mode" in section
    assert "listener.port" not in section
    everything = json.loads(penstock("config", "explain", "--json").output)
    assert {"node.id", "disk.free_bytes_min"} <= {one["key"] for one in everything}


def test_explain_what_does_not_exist(penstock: Penstock) -> None:
    outcome = penstock("config", "explain", "listener.prot")
    assert outcome.code == 2
    assert "Did you mean listener.port" in outcome.errors


def test_a_wrong_environment_is_told(penstock: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_LISTENER__PORT", "many")
    outcome = penstock("config", "explain")
    assert outcome.code == 2
    assert "environment variable PENSTOCK_LISTENER__PORT" in outcome.errors


# --- Declared topics, other names, show and plan ---

DECLARED = """\
[topic_defaults]
retention_ms = 5000

[[topics]]
name = "orders"
partitions = 3
settings = { "retention.ms" = 1000 }
"""


@pytest.fixture
def declared_file(tmp_path: Path) -> str:
    path = tmp_path / "declared.toml"
    path.write_text(DECLARED)
    return str(path)


def test_check_tells_every_problem_with_its_line(penstock: Penstock, tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(
        "[listener]\nprt = 1\nport = 'x'\n[[topics]]\nname = 'a b'\nrouting = 'ring'\n"
        "[[topics]]\nname = 'c'\nsettings = { 'retention.mss' = 5 }\n"
    )
    outcome = penstock("config", "check", str(path))
    assert outcome.code == 1
    told = outcome.errors
    assert [f"line {number}" in told for number in (2, 3, 6)] == [True] * 3
    assert 'Use "fanout" or "queue".' in told
    assert "line 7: topic 'c': Unknown topic config name: retention.mss" in told


def test_check_shows_declared_topics_and_old_names(penstock: Penstock, tmp_path: Path) -> None:
    path = tmp_path / "old.toml"
    path.write_text("[topics]\nauto_create = false\n")
    outcome = penstock("config", "check", str(path))
    assert outcome.code == 0
    assert "is an old name: call it topic_defaults.auto_create" in outcome.errors
    path.write_text(DECLARED)
    outcome = penstock("config", "check", str(path))
    assert "1 topic declared" in outcome.output
    document = json.loads(penstock("config", "check", str(path), "--json").output)
    assert document["topics"] == [
        {
            "name": "orders",
            "partitions": 3,
            "settings": {"retention.ms": "1000"},
            "source": f"{path} line 4",
        }
    ]


@pytest.mark.parametrize("name", ["PENSTOCK_LISTENER__CONNECTIONS_MAX", "max.connections"])
def test_explain_by_another_name(penstock: Penstock, name: str) -> None:
    document = json.loads(penstock("config", "explain", name, "--json").output)
    assert document["key"] == "listener.connections_max"
    assert document["live"] is True
    assert document["range"] == "at least 1"


def test_explain_says_whether_a_change_is_followed(penstock: Penstock) -> None:
    assert "changes live: yes" in penstock("config", "explain", "disk.free_bytes_min").output
    outcome = penstock("config", "explain", "listener.port")
    assert "changes live: no, it needs a restart" in outcome.output
    assert "range:        at least 0, at most 65535" in outcome.output


def test_explain_suggests_in_the_way_of_naming_that_was_used(penstock: Penstock) -> None:
    outcome = penstock("config", "explain", "max.conections")
    assert outcome.code == 2
    assert "Did you mean max.connections" in outcome.errors


def test_show_is_a_settings_file_that_says_the_same(
    penstock: Penstock, declared_file: str, tmp_path: Path
) -> None:
    again = tmp_path / "again.toml"
    again.write_text(penstock("config", "show", "--config", declared_file, "--toml").output)
    assert again.read_text() == (
        '[topic_defaults]\nretention_ms = 5000\n\n[[topics]]\nname = "orders"\npartitions = 3\n'
        'settings = { "retention.ms" = "1000" }\n'
    )
    assert penstock("config", "check", str(again)).code == 0
    whole = tmp_path / "whole.toml"
    whole.write_text(penstock("config", "show", "--all", "--toml").output)
    assert penstock("config", "check", str(whole)).code == 0


def test_show_tables_and_json(penstock: Penstock, declared_file: str) -> None:
    shown = penstock("config", "show", "--config", declared_file).output
    assert "retention.ms=1000" in shown
    assert "topic_defaults.retention_ms" in shown
    assert "Every setting has its default" in penstock("config", "show").output
    everything = json.loads(penstock("config", "show", "--all", "--json").output)
    assert len(everything["settings"]) > 50


def served() -> Broker:
    """A broker with the defaults of `penstock serve`, which a broker of a test does not have."""
    flags = {"listener.port": 0, "node.storage": "memory"}
    return Broker(load_settings(None, {}, flags).settings)


def test_plan_and_explain_ask_a_broker_and_change_nothing(
    penstock: Penstock, declared_file: str
) -> None:
    with served() as broker:
        asked = ("--bootstrap-server", broker.bootstrap_server)
        planned = penstock("config", "plan", declared_file, *asked)
        assert planned.code == 0
        assert planned.output.splitlines() == [
            "topic_defaults.retention_ms: log.retention.ms 604800000 -> 5000",
            "create topic orders with 3 partitions, retention.ms=1000",
        ]
        assert penstock("topic", "list", *asked).output.count("orders") == 0
        penstock("topic", "create", "orders", "--partitions", "4", *asked)
        planned = penstock("config", "plan", declared_file, "--json", *asked)
        assert planned.code == 1
        document = json.loads(planned.output)
        assert document["steps"][1:] == ["topic orders: set retention.ms=1000"]
        assert "partitions cannot be taken away" in document["problems"][0]
        told = penstock("config", "explain", "log.retention.ms", *asked).output
        assert f"in force:     604800000 on {broker.bootstrap_server}, from default" in told
        alone = penstock("config", "explain", "disk.free_bytes_min", *asked).output
        assert "a broker does not report this setting over the wire" in alone


def test_plan_tells_what_needs_a_restart_and_when_there_is_nothing(
    penstock: Penstock, tmp_path: Path
) -> None:
    path = tmp_path / "plan.toml"
    with served() as broker:
        asked = ("--bootstrap-server", broker.bootstrap_server)
        path.write_text("[node]\nid = 7\n")
        outcome = penstock("config", "plan", str(path), *asked)
        assert outcome.code == 1
        assert "node.id: node.id 1 -> 7 needs a restart" in outcome.errors
        path.write_text("")
        assert penstock("config", "plan", str(path), *asked).output == "Nothing to change.\n"


def test_plan_compares_texts_and_names_what_it_did_not_compare(
    penstock: Penstock, tmp_path: Path
) -> None:
    path = tmp_path / "texts.toml"
    with served() as broker:
        asked = ("--bootstrap-server", broker.bootstrap_server, "--json")

        def planned(text: str) -> dict[str, list[str]]:
            path.write_text(text)
            document: dict[str, list[str]] = json.loads(
                penstock("config", "plan", str(path), *asked).output
            )
            return document

        found = planned(
            "[node]\ndata_dir = '/srv/penstock'\n[flush]\nmode = 'os'\n"
            "[groups]\nconsumer_migration_policy = 'disabled'\n[disk]\nfree_bytes_min = 5\n"
        )
        policy = "groups.consumer_migration_policy: group.consumer.migration.policy"
        assert found["steps"] == [f"{policy} bidirectional -> disabled"]
        assert len(found["problems"]) == 1
        assert found["problems"][0].startswith(
            "node.data_dir: log.dirs penstock-data -> /srv/penstock needs a restart"
        )
        assert {"flush.mode", "disk.free_bytes_min"} <= set(found["not_compared"])
        found = planned("[node]\ndata_dir = './penstock-data/'\n")
        assert found["problems"] == []


LISTENERS = """
[[listeners]]
name = "CLIENTS"
port = 9093
protocol = "SASL_SSL"
mechanisms = ["SCRAM-SHA-512"]
tls = { certificate = "server.crt", key = "server.key" }

[[listeners]]
name = "INSIDE"
host = "127.0.0.2"
port = 9092
protocol = "PLAINTEXT"
"""


@pytest.mark.parametrize("everything", [(), ("--all",)])
def test_listeners_survive_being_shown_as_a_file(
    penstock: Penstock, tmp_path: Path, everything: tuple[str, ...]
) -> None:
    given = tmp_path / "given.toml"
    given.write_text(LISTENERS)
    outcome = penstock("config", "show", "--config", str(given), "--toml", *everything)
    shown = load_settings(outcome.output, {}, {}).settings
    assert shown.listeners == load_settings(LISTENERS, {}, {}).settings.listeners


def test_listeners_are_shown(penstock: Penstock, tmp_path: Path) -> None:
    given = tmp_path / "given.toml"
    given.write_text(LISTENERS)
    for command in (("show", "--config", str(given)), ("check", "--no-files", str(given))):
        output = penstock("config", *command).output
        assert "CLIENTS" in output
        assert "SASL_SSL" in output
    document = json.loads(penstock("config", "show", "--config", str(given), "--json").output)
    assert [one["name"] for one in document["listeners"]] == ["CLIENTS", "INSIDE"]


@pytest.mark.parametrize("name", ["explain", "plan"])
def test_a_secured_broker_is_asked_with_the_settings_of_a_file(
    penstock: Penstock, tmp_path: Path, name: str
) -> None:
    """`explain` ignored `--command-config`, so that a broker with logins could not be asked."""
    users = tmp_path / "users.txt"
    stored = hash_password(Secret("a password"), b"salt of 16 bytes")
    users.write_text(format_user("alice", stored))
    text = f"""
        [node]
        storage = "memory"
        [admin]
        enabled = false
        [security]
        plain_verifier = "file"
        users_file = "{users}"
        [[listeners]]
        name = "LOGINS"
        port = 0
        protocol = "SASL_PLAINTEXT"
        mechanisms = ["PLAIN"]
    """
    client = tmp_path / "client.properties"
    client.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=alice\n"
        "sasl.password=a password\n"
    )
    file = tmp_path / "penstock.toml"
    file.write_text("[node]\nid = 1\n")
    asked = "listener.connections_max" if name == "explain" else str(file)
    with Broker(load_settings(text, {}, {}).settings) as broker:
        words = ("config", name, asked, "--bootstrap-server", broker.bootstrap_server, "--json")
        refused = penstock(*words, "--timeout", "0.5")
        found = penstock(*words, "--command-config", str(client))
    assert refused.code != 0
    assert found.code == 0, found.errors
    if name == "explain":
        assert json.loads(found.output)["broker"]["source"] == "default"


def test_explain_leads_from_a_name_of_kafka_to_a_key_of_a_listener(penstock: Penstock) -> None:
    remedy = "Set client_auth in tls of a listener in [[listeners]]."
    found = penstock("config", "explain", "ssl.client.auth")
    assert found == (0, f"ssl.client.auth is a name of Kafka. {remedy}\n", "")
    document = json.loads(penstock("config", "explain", "ssl.client.auth", "--json").output)
    assert document == {"kafka": "ssl.client.auth", "remedy": remedy}
