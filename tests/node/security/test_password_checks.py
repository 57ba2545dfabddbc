"""Passwords checked by a file, by SCRAM credentials and by a directory."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.core.errors import ConfigError
from penstock.node.security import password_checks
from penstock.node.security.check_threads import (
    CheckThreads,
    CheckUnavailableError,
    password_threads,
)
from penstock.node.security.password_checks import (
    REMEMBERED_SECONDS,
    DirectoryPasswords,
    FilePasswords,
    ScramPasswords,
    read_users_file,
)
from penstock.security.sasl.password_file import format_users, hash_password
from penstock.security.scram_credential import ScramCredential, credential_of, salted_password
from penstock.security.secret import Secret
from tests.node.security.manual_clock import ManualClock

SCRAM_256 = "SCRAM-SHA-256"
SCRAM_512 = "SCRAM-SHA-512"


@pytest.fixture
def threads() -> Iterator[CheckThreads]:
    made = password_threads()
    yield made
    made.stop()


def test_users_of_a_file(threads: CheckThreads, tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text(format_users({"alice": hash_password(Secret("right"), bytes(16))}))

    async def scenario() -> list[str | None]:
        checks = FilePasswords(read_users_file(str(path)), threads)
        found = [
            await checks.verify("alice", Secret("right")),
            await checks.verify("alice", Secret("wrong")),
            await checks.verify("bob", Secret("right")),
        ]
        checks.users = {}
        return [*found, await checks.verify("alice", Secret("right"))]

    assert asyncio.run(scenario()) == ["alice", None, None, None]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot be read: No such file"),
        (b"\xff", "not UTF-8"),
        (b"alice:canary", "line 1"),
        (b"#" * 5_000_000, "at most 4,194,304"),
    ],
)
def test_a_bad_users_file_is_an_error(content: bytes | None, words: str, tmp_path: Path) -> None:
    path = tmp_path / "users"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=words) as raised:
        read_users_file(str(path))
    assert "canary" not in str(raised.value)


def credential(mechanism: str, password: str) -> ScramCredential:
    salted = salted_password(mechanism, Secret(password), b"salt", 4096)
    return credential_of(mechanism, salted, b"salt", 4096)


def test_scram_users(threads: CheckThreads) -> None:
    stored = {
        (SCRAM_256, "old"): credential(SCRAM_256, "right"),
        (SCRAM_256, "both"): credential(SCRAM_256, "weak"),
        (SCRAM_512, "both"): credential(SCRAM_512, "right"),
    }

    async def scenario() -> list[str | None]:
        checks = ScramPasswords(lambda mechanism, user: stored.get((mechanism, user)), threads)
        return [
            await checks.verify("old", Secret("right")),
            await checks.verify("old", Secret("wrong")),
            await checks.verify("both", Secret("right")),
            await checks.verify("both", Secret("weak")),
            await checks.verify("unknown", Secret("right")),
        ]

    assert asyncio.run(scenario()) == ["old", None, "both", None, None]


class FakeDirectory:
    """A directory that counts its questions and may be held."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.is_away = False
        self.gate = threading.Event()
        self.gate.set()

    def check(self, user: str, password: Secret) -> str | None:
        self.asked.append(user)
        self.gate.wait()
        if self.is_away:
            raise CheckUnavailableError("away")
        return user.strip().lower() if password.reveal() == "right" else None


def test_a_directory_returns_its_own_name_and_good_answers_are_remembered() -> None:
    directory, clock = FakeDirectory(), ManualClock()

    async def scenario() -> None:
        checks = DirectoryPasswords(directory, clock)
        for _ in range(3):
            assert await checks.verify(" Alice", Secret("right")) == "alice"
        assert directory.asked == [" Alice"]
        assert await checks.verify("alice", Secret("right")) == "alice"
        assert len(directory.asked) == 2, "another spelling is another question"
        for _ in range(2):
            assert await checks.verify(" Alice", Secret("wrong")) is None
        assert len(directory.asked) == 4, "bad answers are not remembered"
        clock.advance(REMEMBERED_SECONDS - 0.1)
        assert await checks.verify(" Alice", Secret("right")) == "alice"
        assert len(directory.asked) == 4
        clock.advance(0.1)
        assert await checks.verify(" Alice", Secret("right")) == "alice"
        assert len(directory.asked) == 5

    asyncio.run(scenario())


def test_what_is_remembered_is_not_the_password() -> None:
    directory = FakeDirectory()

    async def scenario() -> DirectoryPasswords:
        checks = DirectoryPasswords(directory, ManualClock())
        await checks.verify("ab", Secret("right"))
        return checks

    checks = asyncio.run(scenario())
    assert "right" not in repr(vars(checks))
    # The boundary between name and password is part of it.
    assert checks._mark("ab", Secret("c")) != checks._mark("a", Secret("bc"))
    assert checks._mark("ab", Secret("c")) != DirectoryPasswords(directory, ManualClock())._mark(
        "ab", Secret("c")
    ), "the key belongs to the process"


def test_the_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(password_checks, "REMEMBERED_MAX", 10)
    directory, clock = FakeDirectory(), ManualClock()

    async def scenario() -> None:
        checks = DirectoryPasswords(directory, clock)
        for number in range(30):
            await checks.verify(f"user{number}", Secret("right"))
        assert len(checks._remembered) == 10
        clock.advance(REMEMBERED_SECONDS)
        await checks.verify("another", Secret("right"))
        assert len(checks._remembered) == 1, "old answers are removed"

    asyncio.run(scenario())


def test_an_empty_password_is_never_asked() -> None:
    directory = FakeDirectory()

    async def scenario() -> None:
        assert await DirectoryPasswords(directory, ManualClock()).verify("a", Secret("")) is None

    asyncio.run(scenario())
    assert directory.asked == []


def test_equal_checks_share_one_question() -> None:
    directory = FakeDirectory()
    directory.gate.clear()

    async def scenario() -> None:
        checks = DirectoryPasswords(directory, ManualClock())
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(checks.verify("a", Secret("right"))) for _ in range(100)]
            await asyncio.sleep(0)
            directory.gate.set()
        assert [task.result() for task in tasks] == ["a"] * 100
        assert directory.asked == ["a"]
        assert not checks._asked

    asyncio.run(scenario())


@pytest.mark.parametrize("is_first_gone", [False, True])
def test_a_failed_question_fails_all_that_share_it(is_first_gone: bool) -> None:
    directory = FakeDirectory()
    directory.gate.clear()
    directory.is_away = True

    async def scenario() -> None:
        checks = DirectoryPasswords(directory, ManualClock())
        tasks = [asyncio.Task(checks.verify("a", Secret("right"))) for _ in range(3)]
        await asyncio.sleep(0)
        if is_first_gone:
            tasks[0].cancel()
            await asyncio.sleep(0)
        directory.gate.set()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        kinds = [type(outcome) for outcome in outcomes]
        first = asyncio.CancelledError if is_first_gone else CheckUnavailableError
        assert kinds == [first, CheckUnavailableError, CheckUnavailableError]
        directory.is_away = False
        assert await checks.verify("a", Secret("right")) == "a"

    asyncio.run(scenario())


def test_a_cancelled_waiter_does_not_end_the_question() -> None:
    directory = FakeDirectory()
    directory.gate.clear()

    async def scenario() -> None:
        checks = DirectoryPasswords(directory, ManualClock())
        tasks = [asyncio.Task(checks.verify("a", Secret("right"))) for _ in range(3)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        await asyncio.sleep(0)
        directory.gate.set()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert outcomes[0] == outcomes[2] == "a"
        assert isinstance(outcomes[1], asyncio.CancelledError)

    asyncio.run(scenario())
