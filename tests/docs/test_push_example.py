"""The example of push delivery, and the code of its guide, on a broker in this process."""

import asyncio
import re
import runpy
import sys
from pathlib import Path

import pytest

from penstock import BrokerServer
from tests.node.push.push_stage import PLAIN_TEXT, push_broker, run, settings_from

ROOT = Path(__file__).resolve().parents[2]
EXPECTED = """\
published apple at offset 0
published pear at offset 1
published plum at offset 2
published grape at offset 3
published cherry at offset 4
received apple 1.20
received pear 0.90
received plum 0.75
the shelf was restarted
received grape 3.10
received cherry 4.80
"""


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    example = runpy.run_path(str(ROOT / "examples" / "push" / "prices.py"))

    async def test() -> None:
        async with push_broker(topics={"prices": 1}) as broker:
            await example["main"]("127.0.0.1", broker.push_port)

    run(test)
    assert capsys.readouterr().out == EXPECTED


def guide_blocks() -> list[str]:
    text = (ROOT / "docs" / "guides" / "push.md").read_text()
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


@pytest.mark.parametrize("number", range(4))
def test_the_code_of_the_guide_runs(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = guide_blocks()
    assert len(blocks) == 4
    code = blocks[number]

    async def test() -> None:
        async with BrokerServer(settings_from(PLAIN_TEXT)) as broker:
            for topic in ("prices", "events", "jobs"):
                await broker.create_topic(topic)
            names: dict[str, object] = {"broker": broker}
            source = code.replace("9095", str(broker.push_port))
            exec(compile(source, "push.md", "exec"), names)
            work = names["main"]
            assert callable(work)
            async with asyncio.timeout(20):
                await work(*([broker] if "main(broker" in code else []))

    run(test)
    assert ("resize" if "queue" in code else "42") in capsys.readouterr().out
    assert sys.exc_info()[1] is None
