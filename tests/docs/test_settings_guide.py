"""The guide to settings, run as printed, on a broker with the guide's own file.

The first block of TOML is the file. A command that writes it is followed by the broker before the
next one runs, as the guide's reader would wait.
"""

import time
from pathlib import Path

import pytest

from tests.docs.test_guides import BLOCK, DOCS, commands, compared, run
from tests.oracle.penstock_broker import penstock_broker
from tests.oracle.running_broker import RunningBroker

pytestmark = pytest.mark.interop

WAIT_SECONDS_MAX = 20.0
ENDS = ("settings: read again", "settings refused: nothing was changed")


def reloads(broker: RunningBroker) -> int:
    return sum(broker.log_text().count(end) for end in ENDS)


def wait_for_another(broker: RunningBroker, before: int) -> None:
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while reloads(broker) == before:
        assert time.monotonic() < deadline, broker.log_text()
        time.sleep(0.02)


def test_the_guide_does_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (DOCS / "guides/settings.md").read_text()
    path = tmp_path / "penstock.toml"
    path.write_text(text.partition("```toml\n")[2].partition("```")[0])
    arguments = ["--config", str(path)]
    with penstock_broker(tmp_path / "broker", arguments=arguments) as broker:
        # Brokers of tests have no admin port; the guide's reader has set nothing.
        monkeypatch.delenv("PENSTOCK_ADMIN__ENABLED", raising=False)
        for _, block in BLOCK.findall(text):
            for command, printed in commands(block):
                if command.startswith("penstock serve"):
                    continue
                content, before = path.read_text(), reloads(broker)
                found = run(command, broker.bootstrap, tmp_path)
                assert compared(found, command) == compared(printed, command), command
                if path.read_text() != content:
                    wait_for_another(broker, before)
        log = broker.log_text().replace(f"{tmp_path}/", "")
        printed_log = text.partition("```\nERROR ")[2].partition("```")[0]
        for line in f"ERROR {printed_log}".splitlines():
            assert line in log
