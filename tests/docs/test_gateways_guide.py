"""The commands and the code of the guide about gateways run as they are written."""

import asyncio
import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from penstock import BrokerServer
from penstock.core.settings.config import load_settings
from tests.node.gateways.gateway_stage import gateway_broker, run

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "guides" / "gateways.md").read_text()


def blocks(kind: str) -> list[str]:
    """Return the code blocks of a kind."""
    return re.findall(rf"```{kind}\n(.*?)```", GUIDE, re.DOTALL)


async def curl(broker: BrokerServer, words: list[str]) -> str:
    """Return the output of a command of the guide; a stream is cut after a moment."""
    more = ["--max-time", "1"] if "-N" in words else []
    here = [one.replace("localhost:8081", f"127.0.0.1:{broker.http_port}") for one in words]
    done = await asyncio.to_thread(
        subprocess.run, [*here, "-sS", *more], capture_output=True, text=True, check=False
    )
    return done.stdout


@pytest.mark.slow
def test_the_commands_of_the_guide() -> None:
    async def test() -> None:
        async with gateway_broker(topics={"prices": 1}) as broker:
            commands = [
                shlex.split(line)
                for block in blocks("sh")
                for line in block.replace("\\\n", "").splitlines()
            ]
            assert [one[0] for one in commands] == ["curl"] * 3
            stored = json.loads(await curl(broker, commands[0]))
            assert [one["offset"] for one in stored["records"]] == [0, 1]
            found = json.loads(await curl(broker, commands[1]))
            assert [one["value"] for one in found["records"]] == ["1.20", "0.80"]
            events = await curl(broker, commands[2])
            assert "id: 0:1\n" in events
            (shown,) = blocks("text")
            fixed = re.sub(r"\d{13}", "T", shown)
            assert fixed in re.sub(r"\d{13}", "T", events)

    run(test)


def test_the_code_of_the_guide(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = blocks("python")

    async def test() -> None:
        async with gateway_broker(topics={"prices": 1}) as broker:
            await broker.publish("prices", b"1.20", key=b"apple")
            names: dict[str, object] = {}
            source = code.replace("localhost:8081", f"127.0.0.1:{broker.http_port}")
            exec(compile(source, "gateways.md", "exec"), names)
            work = names["main"]
            assert callable(work)
            await work()

    run(test)
    assert "apple 1.20" in capsys.readouterr().out


@pytest.mark.parametrize("place", ["guide", "example"])
def test_the_settings_of_the_guide_and_the_example(place: str) -> None:
    example = ROOT / "examples" / "browser" / "penstock.toml"
    text = example.read_text() if place == "example" else blocks("toml")[0]
    edge = load_settings(text, {}, {}).settings.edge
    assert edge.http_port == 8081
    assert edge.allowed_origins


def test_the_port_has_the_short_name_of_a_site() -> None:
    environment = {"REGISTRY_URL": "http://localhost:8070", "HTTP_PORT": "8099"}
    assert load_settings("", environment, {}).settings.edge.http_port == 8099
    assert load_settings("", {"PENSTOCK_EDGE__HTTP_PORT": "1"}, {}).settings.edge.http_port == 1
