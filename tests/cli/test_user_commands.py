"""`penstock user` against a broker in this process, and in a data directory without a broker."""

import base64
import io
import json
import secrets
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from penstock.cli.user import passwords
from penstock.security.sasl.password_file import parse_users, password_matches
from penstock.security.sasl_client import SCRAM_SHA_256, SCRAM_SHA_512
from penstock.security.scram_credential import credential_of, salted_password
from penstock.security.secret import Secret
from penstock.testing import Broker
from tests.cli.conftest import Outcome, Penstock

CANARY = "correct horse battery staple"
Typed = Callable[[str], None]


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture(params=["broker", "data_dir"])
def user(request: pytest.FixtureRequest, penstock: Penstock, tmp_path: Path) -> Penstock:
    """`penstock user` on a running broker, and on a data directory."""
    if request.param == "broker":
        where = ("--bootstrap-server", request.getfixturevalue("broker").bootstrap_server)
    else:
        where = ("--data-dir", str(tmp_path / "data"))
    return lambda *words: penstock("user", *words, *where)


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Typed:
    """Give the next command this standard input."""

    def put(text: str) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    return put


@pytest.fixture
def add(user: Penstock, typed: Typed) -> Penstock:
    def added(*words: str) -> Outcome:
        typed(f"{CANARY}\n")
        return user("add", *words, "--password-stdin")

    return added


def listed(user: Penstock) -> dict[str, dict[str, int]]:
    found = json.loads(user("list", "--json").output)
    return {one["user"]: one["mechanisms"] for one in found}


def test_add_list_and_remove(user: Penstock, add: Penstock) -> None:
    done = add("alice")
    assert done == (0, "user alice added: SCRAM-SHA-512, 8192 iterations\n", "")
    done = add("bob", "--mechanism", "scram-sha-256", "--mechanism", SCRAM_SHA_512, "--json")
    assert json.loads(done.output) == {
        "user": "bob",
        "mechanisms": {SCRAM_SHA_256: 8192, SCRAM_SHA_512: 8192},
    }
    rows = [line.split() for line in user("list").output.splitlines()[1:]]
    assert rows == [
        ["alice", SCRAM_SHA_512, "8192"],
        ["bob", SCRAM_SHA_256, "8192"],
        ["bob", SCRAM_SHA_512, "8192"],
    ]
    assert json.loads(user("list", "alice", "--json").output) == [
        {"user": "alice", "mechanisms": {SCRAM_SHA_512: 8192}}
    ]
    done = user("remove", "bob", "--mechanism", SCRAM_SHA_256, "--yes")
    assert done.output == "user bob deleted: SCRAM-SHA-256\n"
    assert listed(user)["bob"] == {SCRAM_SHA_512: 8192}
    done = user("remove", "bob", "--yes", "--json")
    assert json.loads(done.output) == {"user": "bob", "deleted": [SCRAM_SHA_512]}
    user("remove", "alice", "--yes")
    assert user("list").output == "no users; add one with `penstock user add`\n"


def test_a_user_is_added_once_and_its_password_changed(
    user: Penstock, add: Penstock, typed: Typed
) -> None:
    assert add("alice", "--iterations", "4096").code == 0
    again = add("alice")
    assert again.code == 1
    assert "user 'alice' exists already (SCRAM-SHA-512)" in again.errors
    assert "penstock user password alice" in again.errors
    # Another mechanism is another password of the same user.
    assert add("alice", "--mechanism", SCRAM_SHA_256).code == 0
    typed("new\n")
    done = user("password", "alice", "--password-stdin", "--mechanism", SCRAM_SHA_512)
    assert done.output == "user alice password changed: SCRAM-SHA-512, 8192 iterations\n"
    typed("new\n")
    done = user("password", "alice", "--password-stdin", "--iterations", "5000")
    assert listed(user) == {"alice": {SCRAM_SHA_256: 5000, SCRAM_SHA_512: 5000}}


def test_users_that_do_not_exist(user: Penstock, add: Penstock, typed: Typed) -> None:
    add("alice")
    typed("x")
    for words in (
        ("list", "bob"),
        ("remove", "bob", "--yes"),
        ("password", "bob", "--password-stdin"),
    ):
        done = user(*words)
        assert done.code == 1
        assert "user 'bob' not found." in done.errors
    done = user("remove", "alice", "--mechanism", SCRAM_SHA_256, "--yes")
    assert done.code == 1
    assert "has no password for SCRAM-SHA-256" in done.errors


def test_mistakes_are_reported(user: Penstock, typed: Typed, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_text("\n")
    long = tmp_path / "long"
    long.write_text("x" * 256)
    lines = tmp_path / "lines"
    lines.write_text("a\nb\n")
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff")
    for words, text in [
        (("add", "a\nb", "--password-stdin"), "SASLprep"),
        (("add", "", "--password-stdin"), "must not be empty"),
        (("add", "a", "--mechanism", "PLAIN"), "PLAIN"),
        (("add", "a", "--iterations", "4095"), "4095"),
        (("add", "a"), "cannot ask for a password without a terminal"),
        (("add", "a", "--password-stdin", "--password-file", "f"), "not both"),
        (("add", "a", "--password-file", "no such file"), "cannot read no such file"),
        (("add", "a", "--password-file", str(empty)), "is empty"),
        (("add", "a", "--password-file", str(long)), "more than 255 bytes"),
        (("add", "a", "--password-file", str(lines)), "more than one line"),
        (("add", "a", "--password-file", str(binary)), "is not UTF-8"),
        (("add", "a", CANARY), "unexpected extra argument"),
    ]:
        typed("x")
        outcome = user(*words)
        assert (outcome.code, outcome.output) == (2, ""), words
        assert text in outcome.errors


def test_a_password_file_that_others_can_read(user: Penstock, tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text(f"{CANARY}\r\n")
    path.chmod(0o644)
    done = user("add", "alice", "--password-file", str(path))
    assert done.code == 0
    assert f"chmod 600 {path}" in done.errors
    path.chmod(0o600)
    assert user("add", "bob", "--password-file", str(path)).errors == ""


def test_the_password_is_asked_for_on_a_terminal(
    user: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, object]] = []

    def prompt(text: str, **options: object) -> str:
        asked.append({"text": text, **options})
        return CANARY

    monkeypatch.setattr(click, "prompt", prompt)
    monkeypatch.setattr(passwords, "_is_terminal", lambda: True)
    assert user("add", "alice").code == 0
    assert asked == [
        {
            "text": "Password of alice",
            "hide_input": True,
            "confirmation_prompt": True,
            "err": True,
            "type": str,
        }
    ]


def test_the_stored_credential_fits_the_password_and_hides_it(
    penstock: Penstock, typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    salt = bytes(range(32))
    monkeypatch.setattr(secrets, "token_bytes", lambda count: salt[:count])
    typed(CANARY)
    folder = tmp_path / "data"
    words = ("alice", "--password-stdin", "--data-dir", str(folder), "--mechanism", SCRAM_SHA_256)
    assert penstock("user", "add", *words).code == 0
    salted = salted_password(SCRAM_SHA_256, Secret(CANARY), salt, 8192)
    wanted = credential_of(SCRAM_SHA_256, salted, salt, 8192)
    stored = b"".join(path.read_bytes() for path in folder.iterdir())
    for kept in (wanted.salt, wanted.stored_key, wanted.server_key):
        assert base64.b64encode(kept) in stored
    for hidden in (CANARY.encode(), salted, base64.b64encode(salted), salted.hex().encode()):
        assert hidden not in stored


def test_the_line_of_a_users_file(penstock: Penstock, typed: Typed, tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text("another\n")
    path.chmod(0o600)
    lines = []
    for words in (("alice", "--password-stdin"), ("ops:ä", "--password-file", str(path))):
        typed(CANARY)
        code, line, errors = penstock("user", "hash", *words)
        assert (code, errors) == (0, "")
        assert CANARY not in line
        lines.append(line)
    users = parse_users("".join(lines))
    assert list(users) == ["alice", "ops:ä"]
    assert password_matches(users["alice"], Secret(CANARY))
    assert password_matches(users["ops:ä"], Secret("another"))
    typed(CANARY)
    assert penstock("user", "hash", "alice", "--password-stdin").output not in lines  # a new salt


def test_mistakes_at_a_line_of_a_users_file(penstock: Penstock, typed: Typed) -> None:
    for words, text in [
        (("a\nb", "--password-stdin"), "SASLprep"),
        (("alice",), "cannot ask for a password without a terminal"),
        (("alice", "--password-file", "no such file"), "cannot read no such file"),
    ]:
        typed(CANARY)
        outcome = penstock("user", "hash", *words)
        assert (outcome.code, outcome.output) == (2, ""), words
        assert text in outcome.errors


def test_a_data_directory_in_use_is_not_touched(
    penstock: Penstock, typed: Typed, tmp_path: Path
) -> None:
    folder = str(tmp_path / "data")
    with Broker(data_dir=folder):
        typed("x")
        done = penstock("user", "add", "alice", "--password-stdin", "--data-dir", folder)
        assert done.code == 2
        assert "a running broker uses the data directory" in done.errors
        assert "Leave --data-dir out" in done.errors


def test_a_missing_data_directory(penstock: Penstock, tmp_path: Path) -> None:
    done = penstock("user", "list", "--data-dir", str(tmp_path / "nothing"))
    assert done.code == 2
    assert "there is no data directory" in done.errors
    assert not (tmp_path / "nothing").exists()


def test_the_first_administrator_is_there_when_the_broker_starts(
    penstock: Penstock, typed: Typed, tmp_path: Path
) -> None:
    folder = str(tmp_path / "data")
    typed(CANARY)
    assert penstock("user", "add", "admin", "--password-stdin", "--data-dir", folder).code == 0
    with Broker(data_dir=folder) as broker:
        server = ("--bootstrap-server", broker.bootstrap_server)
        assert "admin" in penstock("user", "list", *server).output
        assert penstock("topic", "create", "t", *server).code == 0
    # The password of a lost administrator is set again while the broker is stopped.
    typed("new")
    assert penstock("user", "password", "admin", "--password-stdin", "--data-dir", folder).code == 0
    with Broker(data_dir=folder) as broker:
        server = ("--bootstrap-server", broker.bootstrap_server)
        assert "t" in penstock("topic", "list", *server).output
