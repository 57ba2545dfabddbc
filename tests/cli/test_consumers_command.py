"""`penstock consumers run`: which consumers of a module it runs, and its errors."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from penstock.consumers import application
from penstock.consumers.application import Consumer
from penstock.consumers.errors import ConsumerStoppedError
from tests.cli.conftest import Penstock

MODULE = """
import penstock

@penstock.consumer(topic="orders", group="billing")
def bill(record): ...

@penstock.consumer(topic="orders", group="shipping")
async def ship(record): ...

again = bill
some = [ship]
other = 5
"""


class Runs:
    """Stands for `penstock.run`: the calls, and an error to raise."""

    def __init__(self) -> None:
        self.calls: list[tuple[list[str], str | None, Mapping[str, str] | None]] = []
        self.error: Exception | None = None

    def __call__(
        self,
        *consumers: Consumer,
        bootstrap_server: str | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        groups = [one.options.group for one in consumers]
        self.calls.append((groups, bootstrap_server, settings))
        if self.error is not None:
            raise self.error


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    made = Runs()
    monkeypatch.setattr(application, "run", made)
    return made


@pytest.fixture
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A folder with a module that no other test has imported."""
    (tmp_path / f"{module_name(request)}.py").write_text(MODULE)
    return tmp_path


def module_name(request: pytest.FixtureRequest) -> str:
    return "app_" + "".join(one for one in request.node.name if one.isalnum())


@pytest.mark.parametrize(
    ("suffix", "groups"),
    [("", ["billing", "shipping"]), (":bill", ["billing"]), (":some", ["shipping"])],
)
def test_all_consumers_of_a_module_or_the_named_ones(
    penstock: Penstock,
    runs: Runs,
    folder: Path,
    request: pytest.FixtureRequest,
    suffix: str,
    groups: list[str],
) -> None:
    target = module_name(request) + suffix
    done = penstock(
        *("consumers", "run", target, "--directory", str(folder)),
        *("--bootstrap-server", "broker:1"),
    )
    assert (done.code, done.errors) == (0, "")
    assert runs.calls == [(groups, "broker:1", {})]


def test_settings_of_a_file(
    penstock: Penstock, runs: Runs, folder: Path, request: pytest.FixtureRequest
) -> None:
    file = folder / "client.properties"
    file.write_text("security.protocol=SSL\n")
    penstock(
        *("consumers", "run", module_name(request), "--directory", str(folder)),
        *("--client-config", str(file)),
    )
    assert runs.calls[0][1:] == (None, {"security.protocol": "SSL"})
    file.write_bytes(b"\xff\xfe\xfd")
    wrong = penstock(
        *("consumers", "run", module_name(request), "--directory", str(folder)),
        *("--client-config", str(file)),
    )
    assert wrong.code == 2
    assert "it is not UTF-8" in wrong.errors


@pytest.mark.parametrize("suffix", [":other", ":nothing"])
def test_a_name_that_is_no_consumer(
    penstock: Penstock, runs: Runs, folder: Path, request: pytest.FixtureRequest, suffix: str
) -> None:
    target = module_name(request) + suffix
    done = penstock("consumers", "run", target, "--directory", str(folder))
    assert done.code == 2
    assert f"error: '{target}' has no consumer." in done.errors
    assert "@penstock.consumer(topic=..., group=...)" in done.errors
    assert runs.calls == []


def test_a_missing_module(penstock: Penstock, runs: Runs, tmp_path: Path) -> None:
    done = penstock("consumers", "run", "no_such_app", "--directory", str(tmp_path))
    assert done.code == 2
    assert "error: module 'no_such_app' not found" in done.errors
    assert "--directory" in done.errors


def test_a_consumer_that_stops_is_an_error_with_a_hint(
    penstock: Penstock, runs: Runs, folder: Path, request: pytest.FixtureRequest
) -> None:
    runs.error = ConsumerStoppedError("stopped at orders-0 at offset 7", hint="Correct it.")
    done = penstock("consumers", "run", module_name(request), "--directory", str(folder))
    assert done.code == 1
    assert done.errors == "error: stopped at orders-0 at offset 7\nhint: Correct it.\n"
