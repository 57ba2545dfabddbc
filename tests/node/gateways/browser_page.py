"""Chromium without a driver library: a page that a test opens, asks and photographs.

It speaks Chromium's debugging protocol over a WebSocket. It is not a general driver.
"""

import asyncio
import base64
import json
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import websockets

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


class Page:
    """One page of a browser."""

    def __init__(self, socket: websockets.ClientConnection) -> None:
        self._socket = socket
        self._last_id = 0
        self._session: str | None = None
        self.messages: list[str] = []
        """Errors and messages of the page's console."""

    async def command(self, method: str, **parameters: object) -> dict[str, object]:
        """Return the result of a command."""
        self._last_id += 1
        request: dict[str, object] = {"id": self._last_id, "method": method, "params": parameters}
        if self._session is not None:
            request["sessionId"] = self._session
        await self._socket.send(json.dumps(request))
        while True:
            found = json.loads(await self._socket.recv())
            if found.get("id") == self._last_id:
                assert "error" not in found, found
                result = found["result"]
                assert isinstance(result, dict)
                return result
            if found.get("method") in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled"):
                self.messages.append(json.dumps(found["params"])[:500])

    async def attach(self) -> None:
        """Open an empty page."""
        target = (await self.command("Target.createTarget", url="about:blank"))["targetId"]
        attached = await self.command("Target.attachToTarget", targetId=target, flatten=True)
        self._session = str(attached["sessionId"])
        await self.command("Page.enable")
        await self.command("Runtime.enable")

    async def open(self, url: str) -> None:
        """Load a URL."""
        await self.command("Page.navigate", url=url)

    async def ask(self, expression: str) -> object:
        """Return the value of a JavaScript expression, which may be a promise."""
        found = await self.command(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in found, found
        result = found["result"]
        assert isinstance(result, dict)
        return result.get("value")

    async def until(self, expression: str, seconds_max: float = 20.0) -> object:
        """Wait until an expression is true; return its value."""
        ends_at = asyncio.get_running_loop().time() + seconds_max
        while not (value := await self.ask(expression)):
            assert asyncio.get_running_loop().time() < ends_at, (expression, self.messages)
            await asyncio.sleep(0.02)
        return value

    async def photograph(self, file: Path) -> None:
        """Write a picture of the page."""
        found = await self.command("Page.captureScreenshot", format="png")
        content = base64.b64decode(str(found["data"]))
        await asyncio.to_thread(file.write_bytes, content)


@asynccontextmanager
async def browser_page() -> AsyncIterator[Page]:
    """Run a browser with one page."""
    assert CHROMIUM is not None, "Chromium is not installed: apt-get install chromium"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        process = await asyncio.create_subprocess_exec(
            CHROMIUM,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--window-size=900,640",
            "--remote-debugging-port=0",
            f"--user-data-dir={folder}",
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stderr is not None
        try:
            url = b""
            while not url.startswith(b"DevTools listening on "):
                url = await process.stderr.readline()
                assert url, "the browser ended"
            address = url.decode().split()[-1]
            async with websockets.connect(address, max_size=None) as socket:
                page = Page(socket)
                await page.attach()
                yield page
        finally:
            process.terminate()
            await process.wait()
