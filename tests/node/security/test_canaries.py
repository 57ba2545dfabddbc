"""No password, token or key leaves a broker, its admin port or a command: each one is a canary.

One broker at log level debug goes through every login, right and wrong, every change of credentials
and broken requests with secrets in them. Then the secrets are searched in everything that it and
the commands printed, answered or stored, in each form that `canaries` knows.
"""

import base64
import contextlib
import json
import re
import secrets
import sqlite3
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from penstock.protocol.api_keys import ApiKey
from penstock.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from penstock.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
)
from penstock.protocol.messages.sasl_handshake import SaslHandshakeRequest
from penstock.security.scram_credential import salted_password
from penstock.security.secret import Secret
from tests.interop.login_wire import request_bytes
from tests.node.security.canaries import Canaries
from tests.node.security.canary_scene import (
    OAUTHBEARER,
    PLAIN,
    SCRAM_256,
    SCRAM_512,
    CanaryScene,
)
from tests.oracle.certificates import CertificateAuthority, rsa_key
from tests.oracle.token_server import CLIENT_ID, TokenServer

SALT = bytes(range(100, 132))
ITERATIONS = 4096
BROKER, SET = 4, 0


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[CanaryScene]:
    authority = CertificateAuthority(tmp_path / "certificates")
    secret = f"canary-client-{secrets.token_hex(8)}"
    with TokenServer(identity=authority.server(), client_secret=secret) as tokens:
        found = CanaryScene(tmp_path, tokens, authority)
        try:
            yield found
        finally:
            if found.broker.is_running():
                found.broker.kill()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_no_secret_is_printed_answered_or_stored(scene: CanaryScene) -> None:
    create_users_file(scene)
    scene.start()
    change_users(scene)
    log_in_with_commands(scene)
    log_in_with_librdkafka(scene)
    send_broken_frames(scene)
    send_broken_requests(scene)
    ask_admin_port(scene)
    use_commands(scene)
    see_processes(scene)
    scene.broker.stop()
    scene.start(admin={"auth": "bearer"})
    ask_admin_port_with_tokens(scene)
    scene.broker.stop()
    check_everything_happened(scene)
    add_stored_secrets(scene)
    assert scene.found_in_outputs() == {}
    assert scene.canaries.found_in(scene.broker.log_text()) == set()
    assert scene.canaries.found_below(scene.path("data")) == {}
    check_control(scene)


def check_control(scene: CanaryScene) -> None:
    """The name of a user is no secret: the search finds it in each of the places."""
    assert scene.control.found_in(scene.broker.log_text()) == {"user"}
    assert scene.control.found_below(scene.path("data")) == {"metadata.sqlite3": {"user"}}
    listed = [text for origin, text in scene.outputs if origin.startswith("user list")]
    assert scene.control.found_in(listed[0]) == {"user"}


def create_users_file(scene: CanaryScene) -> None:
    """Write the users of PLAIN: lines from each source of a password."""
    password = scene.passwords["alice"]
    file = str(scene.path("admin.password"))
    line = scene.command("user", "hash", "alice", "--password-stdin", typed=f"{password}\n")
    line += scene.command("user", "hash", "admin", "--password-file", file)
    scene.path("users.txt").write_text(line)


def change_users(scene: CanaryScene) -> None:
    """Set credentials with a known salt, so that the salted password is known too."""
    admin = AdminClient(scene.librdkafka(PLAIN, "admin", scene.passwords["admin"]))
    password = scene.passwords["scram"]
    for mechanism, kind, user in (
        (SCRAM_256, ScramMechanism.SCRAM_SHA_256, "scram"),
        (SCRAM_512, ScramMechanism.SCRAM_SHA_512, "scram"),
        (SCRAM_512, ScramMechanism.SCRAM_SHA_512, scene.control_user),
    ):
        salted = salted_password(mechanism, Secret(password), SALT, ITERATIONS)
        scene.canaries.add(f"salted-{mechanism}", salted)
        credential = ScramCredentialInfo(kind, ITERATIONS)
        change = UserScramCredentialUpsertion(user, credential, password.encode(), SALT)
        for result in admin.alter_user_scram_credentials([change]).values():
            result.result(30)


def log_in_with_commands(scene: CanaryScene) -> None:
    cases = [
        (PLAIN, "alice", scene.passwords["alice"]),
        (SCRAM_256, "scram", scene.passwords["scram"]),
        (SCRAM_512, "scram", scene.passwords["scram"]),
        (OAUTHBEARER, CLIENT_ID, scene.tokens.client_secret),
    ]
    for mechanism, user, password in cases:
        right = scene.client_file("right.properties", user, password, mechanism)
        scene.command("topic", "list", "--command-config", right)
        wrong = scene.client_file("wrong.properties", user, scene.wrong, mechanism)
        scene.command("topic", "list", "--command-config", wrong, is_good=False)


def log_in_with_librdkafka(scene: CanaryScene) -> None:
    for mechanism, user in ((PLAIN, "alice"), (SCRAM_256, "scram"), (SCRAM_512, "scram")):
        assert scene.logs_in(mechanism, user, scene.passwords[user])
    assert scene.logs_in(OAUTHBEARER, "", token(scene, "good"))


def token(scene: CanaryScene, name: str, *, lifetime: float = 300, is_forged: bool = False) -> str:
    """A new token; its claims and its signature are secrets."""
    made = scene.tokens.token(
        subject="service",
        lifetime_seconds=lifetime,
        claims={"jti": secrets.token_hex(8)},
        key=rsa_key() if is_forged else None,
    )
    _, claims, signature = made.split(".")
    scene.canaries.add(f"token-{name}-claims", claims)
    scene.canaries.add(f"token-{name}-signature", signature)
    return made


def send(scene: CanaryScene, listener: str, *parts: bytes, has_tls: bool) -> bytes:
    """Send each part after the answer to the one before; return and keep the answers."""
    answers = b""
    with scene.raw_socket(listener, has_tls=has_tls) as opened:
        opened.settimeout(3)
        with contextlib.suppress(OSError):
            for part in parts:
                opened.sendall(part)
                answers += opened.recv(65_536)
    scene.outputs.append((f"answers of {listener}", answers.decode("latin-1")))
    return answers


def handshake(mechanism: str, version: int = 1) -> bytes:
    return request_bytes(SaslHandshakeRequest(mechanism=mechanism), version)


def authenticate(data: bytes) -> bytes:
    return request_bytes(SaslAuthenticateRequest(auth_bytes=data), 2)


def send_broken_frames(scene: CanaryScene) -> None:
    """Send logins with a secret at the wrong place, in the wrong form and at the wrong time."""
    secret = scene.wrong.encode()
    right = scene.passwords["alice"].encode()
    bad_tokens = {
        PLAIN: [
            secret,
            b"\0alice\0" + secret,
            b"\0alice\0" + right + b"\0" + secret,
            b"\0" + scene.control_user.encode() + b"\0" + secret,
            b"\0\0" + secret,
            b"\0alice\0" + secret * 9,
            b"\0alice\0\xff" + secret,
            b"admin\0alice\0" + right,
        ],
        SCRAM_256: [secret, b"n,,n=scram," + secret, b"p=tls-unique,," + secret],
        OAUTHBEARER: [
            secret,
            b"n,,\x01auth=Bearer " + secret + b"\x01\x01",
            b"n,,\x01auth=Basic " + base64.b64encode(secret) + b"\x01\x01",
            b"n,,\x01auth=Bearer " + token(scene, "expired", lifetime=-900).encode() + b"\x01\x01",
            b"n,,\x01auth=Bearer " + token(scene, "forged", is_forged=True).encode() + b"\x01\x01",
            b"n,a=admin,\x01auth=Bearer " + token(scene, "other").encode() + b"\x01\x01",
        ],
    }
    acknowledged = authenticate(b"\x01")
    for mechanism, tokens in bad_tokens.items():
        for bad in tokens:
            send(
                scene,
                "CLIENTS",
                handshake(mechanism),
                authenticate(bad),
                acknowledged,
                has_tls=True,
            )
            raw = struct.pack(">i", len(bad)) + bad
            send(scene, "CLIENTS", handshake(mechanism, 0), raw, has_tls=True)
    frame = authenticate(b"\0alice\0" + secret)
    http = b"GET /?password=%b HTTP/1.1\r\nAuthorization: Basic %b\r\n\r\n" % (
        secret,
        base64.b64encode(b"alice:" + secret),
    )
    unknown = struct.pack(">hhih", 999, 0, 7, -1) + secret
    broken_name = request_bytes(MetadataRequest(topics=(MetadataRequestTopic(name="t"),)), 12)
    broken_name = broken_name[:4] + broken_name[4:].replace(b"\x02t", b"\x7ft") + secret
    broken = [
        frame,
        frame[:-8],
        struct.pack(">i", len(frame) - 4 + 8) + frame[4:] + secret,
        struct.pack(">i", 2**31 - 1) + secret,
        struct.pack(">i", -1) + secret,
        struct.pack(">i", len(unknown)) + unknown,
        struct.pack(">i", len(broken_name) - 4) + broken_name[4:],
        secret * 100,
        http,
    ]
    for listener, has_tls in (("CLIENTS", True), ("CLIENTS", False), ("OPEN", False)):
        for data in broken:
            send(scene, listener, data, has_tls=has_tls)
    send(scene, "CLIENTS", handshake(PLAIN), handshake(PLAIN), frame, has_tls=True)


def send_broken_requests(scene: CanaryScene) -> None:
    """Send changes of credentials that are refused, and broken ones, without and with a login."""
    secret = scene.canaries.secrets[f"salted-{SCRAM_256}"]
    good = ScramCredentialUpsertion(
        name="x", mechanism=1, iterations=ITERATIONS, salt=SALT, salted_password=secret
    )
    requests = []
    for name, mechanism, iterations in (("x", 1, 1), ("x", 9, ITERATIONS), ("", 1, ITERATIONS)):
        change = ScramCredentialUpsertion(
            name=name,
            mechanism=mechanism,
            iterations=iterations,
            salt=SALT,
            salted_password=secret,
        )
        upsertions = (change, good)
        request = AlterUserScramCredentialsRequest(deletions=(), upsertions=upsertions)
        assert secret.hex() not in repr(request)
        assert repr(secret) not in repr(request)
        requests.append(request_bytes(request, 0))
    requests.append(requests[0][:3] + bytes([requests[0][3] - 6]) + requests[0][4:-6])
    requests.append(requests[0].replace(struct.pack(">i", 1), struct.pack(">i", -5), 1))
    names = ("sasl.jaas.config", "ssl.key.password", "log.retention.ms")
    configs = tuple(
        AlterableConfig(name=name, config_operation=SET, value=scene.wrong) for name in names
    )
    resource = AlterConfigsResource(resource_type=BROKER, resource_name="1", configs=configs)
    altered = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
    login = authenticate(b"\0admin\0" + scene.passwords["admin"].encode())
    for request_frame in requests:
        send(scene, "OPEN", request_frame, has_tls=False)
        send(scene, "CLIENTS", handshake(PLAIN), login, request_frame, has_tls=True)
    # The answer of this one may repeat the value to the client that sent it; the log may not.
    kept = len(scene.outputs)
    answer = send(
        scene, "CLIENTS", handshake(PLAIN), login, request_bytes(altered, 1), has_tls=True
    )
    del scene.outputs[kept:]
    assert b"ssl.key.password" in answer


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def ask_admin_port(scene: CanaryScene) -> None:
    """Read every page with each kind of identity."""
    admin = basic("admin", scene.passwords["admin"])
    description = scene.get("/api/v1/openapi.json", admin)
    paths = ["/metrics", "/health/live", "/health/ready", "/api/v1/status"]
    if description.status_code == 200:
        paths += [path for path, kinds in description.json()["paths"].items() if "get" in kinds]
    for path in paths:
        plain = path.replace("{broker}", "1").replace("{partition}", "0").replace("{", "x")
        scene.get(plain.replace("}", ""), admin)
    for header in (
        None,
        basic("admin", scene.wrong),
        basic("nobody", scene.passwords["alice"]),
        f"Basic {scene.wrong}",
        f"Bearer {scene.wrong}",
        basic("alice", scene.passwords["alice"]),
    ):
        for path in ("/metrics", "/api/v1/topics", "/api/v1/nothing"):
            assert scene.get(path, header).status_code in {401, 403, 404, 200}
    assert scene.get("/metrics", admin).status_code == 200


def ask_admin_port_with_tokens(scene: CanaryScene) -> None:
    good = token(scene, "http")
    assert scene.get("/api/v1/topics", f"Bearer {good}").status_code == 200
    for bad in (
        scene.wrong,
        token(scene, "http-forged", is_forged=True),
        token(scene, "http-old", lifetime=-900),
    ):
        assert scene.get("/api/v1/topics", f"Bearer {bad}").status_code == 401
    assert scene.get("/api/v1/topics", basic("admin", scene.passwords["admin"])).status_code == 401


def use_commands(scene: CanaryScene) -> None:
    """Run the commands about users and rules, also with mistakes."""
    admin = scene.client_file("admin.properties", "admin", scene.passwords["admin"], PLAIN)
    config = ("--command-config", admin)
    new = scene.canaries.new("new")
    file = str(scene.path("new.password"))
    scene.path("new.password").write_text(new)
    scene.command("user", "add", "bob", "--password-file", file, *config)
    scene.command("user", "add", "bob", "--password-file", file, *config, is_good=False)
    scene.command("user", "password", "bob", "--password-stdin", "--json", *config, typed=new)
    scene.command("user", "list", *config)
    scene.command(
        "user", "add", "eve", "--password-stdin", *config, typed=f"{new}\n{new}\n", is_good=False
    )
    rule = ("--principal", "User:bob", "--operation", "read", "--topic", "t")
    for words in (("add", *rule), ("list",), ("remove", *rule, "--yes"), ("export",)):
        scene.command("acl", *words, *config)
    broken = scene.path("broken.properties")
    for text in (f"sasl.password {new}\n{new}\n", f"sasl.jaas.config={new}\n", f"{new}=1\n"):
        broken.write_text(f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n{text}")
        scene.command("topic", "list", "--command-config", str(broken), is_good=False)
    toml = str(scene.path("broker.toml"))
    scene.command("config", "check", toml)
    scene.command("config", "show", "--config", toml)
    scene.command("config", "explain", "--config", toml)
    scene.outputs.append(("doctor", run_any(scene, "doctor", "--config", toml, *config)))


def run_any(scene: CanaryScene, *words: str) -> str:
    """Run a command whose exit code depends on the machine."""
    with scene.begun(*words) as process:
        printed, _ = process.communicate(timeout=60)
    return printed.decode()


def see_processes(scene: CanaryScene) -> None:
    """Look at the broker, and at commands that have read their settings and wait."""
    scene.see_process(scene.broker.pid)
    config = str(scene.path("admin.properties"))
    logins = scene.logins("User:admin")
    with scene.begun("user", "add", "carol", "--password-stdin", "--command-config", config) as one:
        scene.wait_until(lambda: scene.logins("User:admin") > logins)
        scene.see_process(one.pid)
        printed, _ = one.communicate(scene.passwords["scram"].encode(), timeout=60)
    scene.outputs.append(("user add", printed.decode()))
    assert one.returncode == 0


def check_everything_happened(scene: CanaryScene) -> None:
    """Without these lines the search would prove nothing."""
    log = scene.broker.log_text()
    assert " DEBUG " in log
    assert " ERROR " not in log
    lines = [json.loads(one) for one in re.findall(r"penstock\.audit: (.*)", log)]
    apis = {one.get("api") for one in lines if one["event"] == "allowed"}
    assert apis >= {ApiKey.ALTER_USER_SCRAM_CREDENTIALS.name, ApiKey.CREATE_ACLS.name}
    assert {one.get("listener") for one in lines if one["event"] == "login_failed"} >= {"ADMIN"}
    (*_, metrics) = [text for origin, text in scene.outputs if origin == "GET /metrics"]
    counted = re.findall(r"penstock_authentication_total{(.*)} (\d+)", metrics)
    for mechanism in (PLAIN, SCRAM_256, SCRAM_512, OAUTHBEARER):
        for result in ("success", "failure"):
            row = f'listener="CLIENTS",mechanism="{mechanism}",result="{result}"'
            assert int(dict(counted)[row]) > 0


def add_stored_secrets(scene: CanaryScene) -> None:
    """Search for the salted passwords of all stored credentials too."""
    data = scene.path("data")
    connection = sqlite3.connect(data / "metadata.sqlite3")
    rows = connection.execute(
        "SELECT key, value FROM versions WHERE key LIKE '%/scram/%'"
    ).fetchall()
    connection.close()
    assert len(rows) >= 5
    passwords = [*scene.passwords.values(), scene.canaries.secrets["new"].decode()]
    for key, value in rows:
        stored = json.loads(value)
        salt = base64.b64decode(stored["salt"])
        mechanism = key.split("/scram/")[1].split("/")[0]
        for number, password in enumerate(passwords):
            salted = salted_password(mechanism, Secret(password), salt, stored["iterations"])
            scene.canaries.add(f"stored-{key}-{number}", salted)
    for path in data.rglob("metadata.sqlite3*"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_broker_that_does_not_start_shows_no_secret(scene: CanaryScene) -> None:
    """A mistake in a file of secrets is reported without the content of the file."""
    password = scene.passwords["admin"]
    create_users_file(scene)
    for name, text, mode, changes, words in (
        ("open.txt", f"admin:{password}\n", 0o644, {"bootstrap_admin_file": "open.txt"}, "chmod"),
        ("two.txt", f"admin\n{password}\n", 0o600, {"bootstrap_admin_file": "two.txt"}, "one line"),
        ("users.txt", f"alice:{password}\n", 0o600, {}, "line 1: the hash of 'alice'"),
        ("users.txt", f"{password}\n", 0o600, {}, "line 1: missing ':'"),
        ("key.password", scene.wrong, 0o600, {}, "password"),
        ("server.key", f"{password}\n", 0o600, {}, "server.key"),
        ("users.txt", "", 0o600, {"bind_password": password}, "is not a setting"),
    ):
        kept = {one: (scene.path(one)).read_text() for one in FILES if scene.path(one).exists()}
        scene.path(name).write_text(text)
        scene.path(name).chmod(mode)
        scene.path("bad.toml").write_text(scene.settings(security=changes))
        printed = scene.command("serve", "--config", "bad.toml", is_good=False)
        assert words in printed, name
        for one, content in kept.items():
            scene.path(one).write_text(content)
    assert scene.found_in_outputs() == {}


FILES = ("users.txt", "key.password", "server.key")


def test_every_form_of_a_secret_is_found() -> None:
    canaries = Canaries()
    secret = canaries.new("password")
    binary = secrets.token_bytes(32)
    canaries.add("key", binary)
    for length in range(3):
        text = base64.b64encode(b"user:x"[: 4 + length] + secret.encode() + b"more").decode()
        assert canaries.found_in(f"Basic {text}") == {"password"}
        data = base64.urlsafe_b64encode(bytes(length) + binary).rstrip(b"=")
        assert canaries.found_in(data) == {"key"}
    for text in (secret, f"'{secret}'", repr(secret.encode()), secret.encode().hex()):
        assert canaries.found_in(text) == {"password"}
    for text in (repr(binary), binary.hex(), binary.hex().upper()):
        assert canaries.found_in(text) == {"key"}
    assert canaries.found_in(b"..." + binary + b"...") == {"key"}
    assert canaries.found_in(f"{secret[:-1]} {binary.hex()[:-2]}") == set()
