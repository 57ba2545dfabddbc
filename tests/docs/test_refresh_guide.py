"""The code of the guide about refreshes, on a broker in this process."""

import asyncio
import re
from pathlib import Path

from penstock import BrokerServer
from tests.node.push.push_stage import PLAIN_TEXT, run, settings_from

ROOT = Path(__file__).resolve().parents[2]


def test_the_code_of_the_guide_returns_the_data_set() -> None:
    text = (ROOT / "docs" / "guides" / "refresh.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)

    async def test() -> None:
        async with BrokerServer(settings_from(PLAIN_TEXT)) as broker:
            await broker.create_topic("price")
            for key, value in ((b"tea", b"1"), (b"milk", b"2"), (b"tea", b"3"), (b"milk", None)):
                await broker.publish("price", value, key=key)
            names: dict[str, object] = {}
            exec(compile(code.replace("9095", str(broker.push_port)), "refresh.md", "exec"), names)
            follow = names["follow"]
            assert callable(follow)
            async with asyncio.timeout(20):
                assert await follow() == {b"tea": b"3"}

    run(test)
