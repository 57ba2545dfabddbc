"""The first part of the guide "Secure a broker", typed as a reader would.

Its other parts have tests in `test_security_sections`.
"""

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock.client.property_file import parse_properties
from tests.docs.guide_commands import Block, Reader, blocks, section
from tests.oracle.running_broker import HOST, free_port

GUIDE = (Path(__file__).resolve().parents[2] / "docs/guides/security.md").read_text()
CLIENTS_PORT, OLD_PORT = 9093, 9092
ADMIN_PORT = "PENSTOCK_ADMIN__PORT"
OLD_LISTENER = """
[[listeners]]
name = "OLD"
host = "127.0.0.1"
port = 9092
protocol = "PLAINTEXT"
"""
TIMEOUT_SECONDS = 20.0
CONTENT = re.compile(r"<the content of ([\w.]+)>")

Properties = dict[str, str | int | float | bool]


def commands(block: str) -> Iterator[tuple[str, str]]:
    """Each command of a console block with its output."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, printed = part.partition("\n")
        yield command, printed


class TenMinutes:
    """The first part of the guide, step by step."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._serve = ""
        self._settings = ""

    def type_all(self) -> None:
        """Type every block in its order; a change of the settings is followed by a restart."""
        for block in blocks(section(GUIDE, "In ten minutes")):
            getattr(self, f"_{block.language}")(block)

    def change(self, settings: str) -> None:
        """Write other settings and restart the broker."""
        self._settings = settings
        self._reader.stop()
        self._reader.write("penstock.toml", settings)
        self._reader.serve(self._serve)

    def without(self, *texts: str) -> str:
        """The settings without these parts."""
        found = self._settings
        for text in texts:
            assert text in found
            found = found.replace(text, "")
        return found

    def _bash(self, block: Block) -> None:
        before, serve, after = block.text.partition("penstock serve")
        self._reader.run(before)
        if serve:
            self._serve = (serve + after).strip()
            self._reader.serve(self._serve)

    def _console(self, block: Block) -> None:
        for command, printed in commands(block.text):
            done = self._reader.run(command, is_good=False)
            assert done.stdout + done.stderr == printed, command

    def _toml(self, block: Block) -> None:
        assert block.text.startswith("# penstock.toml\n")
        if self._serve:
            self.change(f"{self._settings}\n{block.text}")
        else:
            self._settings = block.text
            self._reader.write("penstock.toml", block.text)

    def _properties(self, block: Block) -> None:
        """Write the file of the administrator, and one like it for alice."""
        assert block.text.startswith("# admin.properties\n")
        for user in ("admin", "alice"):
            text = block.text.replace("admin", user)
            (file,) = CONTENT.findall(text)
            password = (self._reader.folder / file).read_text().strip()
            self._reader.write(f"{user}.properties", CONTENT.sub(password, text))


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    monkeypatch.chdir(tmp_path)  # librdkafka looks for the file of the authority here
    variables = {ADMIN_PORT: str(free_port())}
    with Reader(tmp_path, (CLIENTS_PORT, OLD_PORT), variables) as typing:
        yield typing


def client(name: str) -> Properties:
    """The settings in a file of the guide, for librdkafka."""
    return {**parse_properties(Path(f"{name}.properties").read_text())}


def write_error(settings: Properties, topic: str) -> str | None:
    """Produce a record; return the name of the error."""
    results: list[KafkaError | None] = []

    def note(error: KafkaError | None, _message: Message) -> None:
        results.append(error)

    producer = Producer({**settings, "message.timeout.ms": 10_000})
    producer.produce(topic, b"hello", on_delivery=note)
    producer.flush(TIMEOUT_SECONDS)
    (error,) = results
    return None if error is None else error.name()


def read_error(settings: Properties, topic: str, group: str) -> str | None:
    """Consume a record; return the name of the error."""
    consumer = Consumer({**settings, "group.id": group, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        message = consumer.poll(TIMEOUT_SECONDS)
        assert message is not None
        error = message.error()
        return None if error is None else error.name()
    finally:
        consumer.close()


def create_topics(settings: Properties, *names: str) -> None:
    admin = AdminClient(settings)
    for result in admin.create_topics([NewTopic(one) for one in names]).values():
        result.result(TIMEOUT_SECONDS)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_ten_minutes(reader: Reader) -> None:
    guide = TenMinutes(reader)
    guide.type_all()
    create_topics(client("admin"), "orders-2", "payments")
    check_alice()
    check_old_clients(reader)
    check_doctor(reader)
    check_audit_log(reader)
    guide.change(guide.without(OLD_LISTENER, ";User:ANONYMOUS"))
    with pytest.raises(ConnectionRefusedError), old_connection(reader):
        pass
    assert metrics(reader).status_code == 403
    check_open_metrics(reader, guide)
    assert write_error(client("alice"), "orders") is None
    assert write_error(client("alice"), "payments") == "TOPIC_AUTHORIZATION_FAILED"
    assert reader.run("penstock topic list").stdout.count("\n") == 5


def check_open_metrics(reader: Reader, guide: TenMinutes) -> None:
    """Without the anonymous super user, the metrics are open by a setting."""
    assert "`metrics_open = true` in the table `[admin]`" in GUIDE
    status = f"penstock status --admin http://{HOST}:{reader.variables[ADMIN_PORT]}"
    assert "(403)" in reader.run(status, is_good=False).stderr
    guide.change(guide.without() + "\n[admin]\nmetrics_open = true\n")
    assert metrics(reader).status_code == 200
    assert reader.run(status, is_good=False).returncode == 1


def check_alice() -> None:
    """The rules of the guide, and nothing else."""
    alice = client("alice")
    assert write_error(alice, "orders") is None
    assert read_error(alice, "orders", "billing") is None
    assert write_error(client("admin"), "orders-2") is None
    assert read_error(alice, "orders-2", "billing") is None
    denied = {"TOPIC_AUTHORIZATION_FAILED"}
    assert {write_error(alice, one) for one in ("orders-2", "payments")} == denied
    assert read_error(alice, "payments", "billing") in denied
    assert read_error(alice, "orders", "other") == "GROUP_AUTHORIZATION_FAILED"
    errors: list[KafkaError] = []
    stranger = Producer(
        {**alice, "sasl.password": "wrong", "error_cb": errors.append, "log_level": 0}
    )
    with pytest.raises(KafkaException):
        stranger.list_topics(timeout=2)
    stranger.poll(TIMEOUT_SECONDS)
    assert "_AUTHENTICATION" in {one.name() for one in errors}


def check_old_clients(reader: Reader) -> None:
    """Clients of the old listener continue as before, and the metric counts them."""
    old: Properties = {"bootstrap.servers": f"{HOST}:{reader.ports[OLD_PORT]}"}
    create_topics(old, "of-an-old-client")
    assert write_error(old, "payments") is None
    assert read_error(old, "payments", "of-an-old-client") is None
    with old_connection(reader):
        found = re.search(
            r"^penstock_listener_connections{listener=\"OLD\"} (\d+)",
            metrics(reader).text,
            re.MULTILINE,
        )
        assert found is not None
        assert int(found[1]) >= 1


def check_audit_log(reader: Reader) -> None:
    """Logins, failed logins, denied requests and changes, without passwords."""
    lines = re.findall(r"penstock\.audit: (.*)", reader.log())
    found = {(one["event"], one.get("principal"), one.get("api")) for one in map(json.loads, lines)}
    assert found >= {
        ("login", "User:admin", None),
        ("login_failed", "User:alice", None),
        ("denied", "User:alice", "PRODUCE"),
        ("allowed", "User:admin", "CREATE_ACLS"),
        ("allowed", "User:ANONYMOUS", "CREATE_TOPICS"),
    }
    for user in ("admin", "alice"):
        assert Path(f"{user}.password").read_text().strip() not in reader.log()


def check_doctor(reader: Reader) -> None:
    command = "penstock doctor --config penstock.toml"
    assert f"`{command}`" in GUIDE
    done = reader.run(command)
    assert re.search(r"^certificate +fine .* valid for localhost", done.stdout, re.MULTILINE)
    assert "3 access rules without a contradiction" in done.stdout
    Path("server.key").chmod(0o644)
    done = reader.run(command, is_good=False)
    assert done.returncode == 1
    assert "chmod 600 server.key" in done.stdout
    Path("server.key").chmod(0o600)


def old_connection(reader: Reader) -> socket.socket:
    return socket.create_connection((HOST, reader.ports[OLD_PORT]), TIMEOUT_SECONDS)


def metrics(reader: Reader) -> httpx.Response:
    return httpx.get(f"http://{HOST}:{reader.variables[ADMIN_PORT]}/metrics")
