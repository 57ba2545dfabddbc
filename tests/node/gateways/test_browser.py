"""The library for browsers and the example page, in Chromium, with a restart of the broker."""

import asyncio
import functools
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from penstock import BrokerServer
from tests.node.gateways.browser_page import browser_page
from tests.node.gateways.gateway_stage import run, until
from tests.node.push.push_stage import settings_from

pytestmark = pytest.mark.slow
EXAMPLE = Path(__file__).parents[3] / "examples" / "browser"
WAIT_SECONDS = 90


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Write nothing."""


@contextmanager
def example_pages() -> Iterator[str]:
    """Serve the folder of the example; return its origin."""
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(_Quiet, directory=str(EXAMPLE))
    )
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://localhost:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def broker_at(folder: Path, origin: str, http_port: int = 0) -> BrokerServer:
    """Return a broker for pages of an origin."""
    return BrokerServer(
        settings_from(
            f"""
[node]
data_dir = "{folder}"
[listener]
port = 0
[edge]
http_port = {http_port}
allowed_origins = ["{origin}"]
"""
        )
    )


def rows(expression: str = "row.cells[0].textContent + '=' + row.cells[1].textContent") -> str:
    """Return the expression of the rows of the page."""
    return f"Array.from(document.querySelectorAll('#rows tr')).map(row => {expression}).join()"


def test_the_example_page_over_a_restart_of_the_broker(tmp_path: Path) -> None:
    async def test() -> None:
        with example_pages() as origin:
            async with asyncio.timeout(WAIT_SECONDS), browser_page() as page:
                async with broker_at(tmp_path / "data", origin) as broker:
                    port = broker.http_port
                    assert port is not None
                    await broker.create_topic("prices", partitions=1)
                    await broker.publish("prices", b"1.20", key=b"apple")
                    await broker.publish("prices", b"0.80", key=b"<b>pear</b>")
                    await page.open(f"{origin}/?broker=http://localhost:{port}")
                    await page.until(f"{rows()} === 'apple=1.20,<b>pear</b>=0.80'")
                    await page.ask(
                        "document.querySelector('[name=value]').value = '1.35';"
                        "document.querySelector('form').requestSubmit()"
                    )
                    placed = "document.getElementById('placed').textContent"
                    await page.until(f"{placed} === 'stored at partition 0, offset 2'")
                    await page.until(f"{rows()} === 'apple=1.35,<b>pear</b>=0.80'")
                    picture = os.environ.get("PENSTOCK_BROWSER_PICTURE")
                    if picture:
                        await page.photograph(Path(picture))
                state = "document.getElementById('state').textContent"
                await page.until(f"{state}.startsWith('connecting again')")
                # The page counts what it is shown from here on: nothing twice, nothing missing.
                await page.ask(
                    "window.shown = [];"
                    "new MutationObserver(() => {"
                    "  const text = document.querySelector('#rows tr').cells[2].textContent;"
                    "  if (window.shown.at(-1) !== text) window.shown.push(text);"
                    "}).observe(document.getElementById('rows'), {subtree: true, childList: true})"
                )
                async with broker_at(tmp_path / "data", origin, port) as broker:
                    await broker.publish("prices", b"1.40", key=b"apple")
                    await page.until(f"{state} === 'connected'", 40)
                    await page.until(f"{rows()}.startsWith('apple=1.40')")
                    await broker.publish("prices", b"1.45", key=b"apple")
                    await broker.publish("prices", None, key=b"<b>pear</b>")
                    await page.until(f"{rows()} === 'apple=1.45'")
                    shown = await page.ask("window.shown.join()")
                    assert shown in ("0:3,0:4", "0:4"), shown
                    assert not page.messages, page.messages

    run(test)


LIBRARY = """
(async () => {
  const { Penstock } = await import("http://localhost:PORT/penstock.js");
  window.broker = new Penstock("ws://localhost:PORT/v1/push");
  window.got = [];
  window.events = [];
  for (const name of ["open", "close", "error"])
    broker.addEventListener(name, (event) => events.push(name));
  window.all = broker.subscribe("t", { from: "earliest", credit: 7 }, async (record) => {
    await null;
    got.push(record.partition + ":" + record.offset + "=" + record.value);
  });
  const places = [];
  for (let number = 0; number < 50; number += 1)
    places.push(broker.publish("t", "v" + number, { partition: number % 2, headers: [["h", "x"]]}));
  const found = await Promise.all(places);
  return found.map((one) => one.partition + ":" + one.offset).join();
})()
"""


def test_the_library_resumes_and_reports_errors(tmp_path: Path) -> None:
    async def test() -> None:
        with example_pages() as origin:
            async with asyncio.timeout(WAIT_SECONDS), browser_page() as page:
                async with broker_at(tmp_path / "data", origin) as broker:
                    port = broker.http_port
                    assert port is not None
                    await broker.create_topic("t", partitions=2)
                    await page.open(f"{origin}/README.md")
                    await page.until("document.readyState === 'complete'")
                    placed = await page.ask(LIBRARY.replace("PORT", str(port)))
                    expected = ",".join(f"{number % 2}:{number // 2}" for number in range(50))
                    assert placed == expected
                    await page.until("got.length === 50")
                    bytes_ = "broker.publish('t', new Uint8Array([255]), {key: 'k', partition: 0})"
                    await page.ask(f"{bytes_}.then(one => one.offset)")
                    await page.until("got.at(-1) === '0:25=undefined'")
                    refused = await page.ask("broker.publish('no', 'x').catch(error => error.code)")
                    assert refused == "UNKNOWN_TOPIC_OR_PARTITION"
                    refused = await page.ask(
                        "broker.subscribe('no', {}, () => 0).ready.catch(error => error.code)"
                    )
                    assert refused == "UNKNOWN_TOPIC_OR_PARTITION"
                    # A topic has one subscription in a session: another client tries it.
                    failing = (
                        "new Promise(done => {"
                        "  const other = new window.broker.constructor('ws://localhost:PORT/v1/push');"
                        "  const fail = () => { throw new Error('mine'); };"
                        "  other.addEventListener('error', event => {"
                        "    other.close();"
                        "    done(event.detail.message);"
                        "  });"
                        "  other.subscribe('t', {from: {1: 0}}, fail);"
                        "})"
                    )
                    assert await page.ask(failing.replace("PORT", str(port))) == "mine"
                before = await page.ask("got.length")
                assert before == 51
                await page.until("events.includes('close')")
                lost = await page.ask(
                    "Promise.race(["
                    " broker.publish('t', 'late', {partition: 1}).then(() => 'stored'),"
                    " new Promise(done => setTimeout(() => done('waits'), 200))])"
                )
                assert lost == "waits"
                async with broker_at(tmp_path / "data", origin, port) as broker:
                    await broker.publish("t", b"while away", partition=0)
                    await page.until("got.length === 53", 40)
                    got = json.loads(str(await page.ask("JSON.stringify(got)")))
                    assert sorted(got[51:]) == ["0:26=while away", "1:25=late"]
                    assert len(set(got)) == 53
                    await page.ask("broker.close()")
                    assert broker._push is not None
                    sessions = broker._push.server.connections
                    await until(lambda: not any(one.address for one in sessions))
                    closed = await page.ask(
                        "broker.publish('t', 'x').catch(error => error.message)"
                    )
                    assert closed == "this client is closed"

    run(test)


MANY = """
(async () => {
  const { Penstock } = await import("http://localhost:PORT/penstock.js");
  const broker = new Penstock("ws://localhost:PORT/v1/push");
  window.taken = [];
  window.queue = broker.subscribe("q", {}, (record) => { taken.push(record.value); });
  await queue.ready;
  const places = [];
  for (let number = 0; number < 15000; number += 1) places.push(broker.publish("t", "v"));
  for (let number = 0; number < 20; number += 1)
    places.push(broker.publish("t", new Uint8Array(900000)));
  const found = await Promise.allSettled(places);
  window.broker = broker;
  return found.filter((one) => one.status === "fulfilled").length;
})()
"""


def test_many_publishes_at_once_and_a_queue_that_its_topic_selects(tmp_path: Path) -> None:
    """Messages stay below the bounds of the broker; a queue is opened again without positions."""

    async def test() -> None:
        with example_pages() as origin:
            serving = broker_at(tmp_path / "data", origin)
            async with asyncio.timeout(WAIT_SECONDS), browser_page() as page, serving as broker:
                await broker.create_topic("t", partitions=1)
                await broker.create_topic("q", partitions=1, routing="queue")
                await page.open(f"{origin}/README.md")
                await page.until("document.readyState === 'complete'")
                assert await page.ask(MANY.replace("PORT", str(broker.http_port))) == 15_020
                await broker.publish("q", b"one")
                await page.until("taken.join() === 'one'")
                await page.ask("broker._session._socket.close()")
                await page.until("!broker.isConnected")
                await page.until("broker.isConnected", 20)
                await broker.publish("q", b"two")
                await page.until("taken.join() === 'one,two' && !queue.isClosed")

    run(test)


def test_pages_of_other_origins_are_refused(tmp_path: Path) -> None:
    async def test() -> None:
        with example_pages() as origin:
            broker = broker_at(tmp_path / "data", "http://shop.example")
            async with asyncio.timeout(WAIT_SECONDS), browser_page() as page, broker:
                await broker.create_topic("t", partitions=1)
                await page.open(f"{origin}/README.md")
                await page.until("document.readyState === 'complete'")
                url = f"//localhost:{broker.http_port}/v1"
                opened = await page.ask(
                    f"new Promise(done => {{ const s = new WebSocket('ws:{url}/push',"
                    " ['penstock.json.v1']); s.onopen = () => done('open');"
                    " s.onerror = () => done('refused'); })"
                )
                assert opened == "refused"
                read = await page.ask(
                    f"fetch('http:{url}/topics/t/records').then(() => 'read', () => 'refused')"
                )
                assert read == "refused"
                for mode in ("cors", "no-cors"):
                    await page.ask(
                        f"fetch('http:{url}/topics/t/records', {{method: 'POST', body: 'x',"
                        f" mode: '{mode}'}}).then(() => 1, () => 0)"
                    )
                assert broker._push is not None
                assert broker._push.server.broker.view("t", 0).end_offset == 0

    run(test)


def test_server_sent_events_resume_in_a_browser(tmp_path: Path) -> None:
    async def test() -> None:
        with example_pages() as origin:
            async with asyncio.timeout(WAIT_SECONDS), browser_page() as page:
                async with broker_at(tmp_path / "data", origin) as broker:
                    port = broker.http_port
                    assert port is not None
                    await broker.create_topic("t", partitions=1)
                    await page.open(f"{origin}/README.md")
                    await page.until("document.readyState === 'complete'")
                    await page.ask(
                        "window.got = []; window.source = new EventSource("
                        f"'http://localhost:{port}/v1/topics/t/stream?from=earliest');"
                        "source.onmessage = (event) => got.push(JSON.parse(event.data).value); 0"
                    )
                    await broker.publish("t", b"one")
                    await page.until("got.join() === 'one'")
                async with broker_at(tmp_path / "data", origin, port) as broker:
                    await broker.publish("t", b"two")
                    await page.until("got.join() === 'one,two'", 40)
                    await page.ask("source.close()")

    run(test)
