"""NATS: a leaf node at the site, and JetStream with file storage on both sides.

Settings, as the documentation of NATS has them for sites that are offline at times: a leaf node
with a JetStream domain of its own; the stream of the site is mirrored by the headquarters, and that
of the headquarters by the site, over the domains. Publishers wait for the acknowledgement of the
stream and set `Nats-Msg-Id`, so that a repeated publish is stored once.
"""

import base64
import contextlib
import json
import shutil
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.outages.cut_link import CutLink
from benchmarks.outages.nats_wire import NatsClient
from benchmarks.outages.outage_plan import number_in
from benchmarks.outages.outage_run import Deliver
from benchmarks.outages.site_processes import ServerProcess, folder_bytes, free_port

START_SECONDS_MAX = 60.0


class NatsSystem:
    """Two servers."""

    def __init__(self) -> None:
        self.name = "NATS leaf node + JetStream"
        self._clients: dict[tuple[str, str], NatsClient] = {}

    def start(self, folder: Path) -> None:
        """Start both servers, and create the streams."""
        program = shutil.which("nats-server") or "/usr/sbin/nats-server"
        self._folder = folder
        self._hub_port, leaf_port, self._site_port = free_port(), free_port(), free_port()
        self._link = CutLink(leaf_port)
        self._link.start()
        hub, site = folder / "hub", folder / "site"
        for one in (hub, site):
            one.mkdir(parents=True)
        (hub / "nats.conf").write_text(
            f"""server_name: hub
listen: 127.0.0.1:{self._hub_port}
jetstream {{ store_dir: "{hub}/data", domain: hub }}
leafnodes {{ listen: 127.0.0.1:{leaf_port} }}
"""
        )
        (site / "nats.conf").write_text(
            f"""server_name: site
listen: 127.0.0.1:{self._site_port}
jetstream {{ store_dir: "{site}/data", domain: site }}
leafnodes {{ remotes: [ {{ url: "nats-leaf://127.0.0.1:{self._link.port}" }} ] }}
"""
        )
        self._hub = ServerProcess([program, "-c", str(hub / "nats.conf")], hub, self._hub_port)
        self._site = ServerProcess([program, "-c", str(site / "nats.conf")], site, self._site_port)
        self._hub.start()
        self._site.start()
        self._create()

    def _create(self) -> None:
        at_hub, at_site = NatsClient(self._hub_port), NatsClient(self._site_port)
        file = {"storage": "file", "retention": "limits", "num_replicas": 1}
        up = {"name": "UP", "subjects": ["up.x"], **file}
        down = {"name": "DOWN", "subjects": ["down.x"], **file}
        _retry(partial(at_site.api, "STREAM.CREATE.UP", up))
        _retry(partial(at_hub.api, "STREAM.CREATE.DOWN", down))
        _retry(partial(at_hub.api, "INFO", {}, "site"))
        for client, name, domain in ((at_hub, "UP", "site"), (at_site, "DOWN", "hub")):
            mirror = {"name": name, "external": {"api": f"$JS.{domain}.API", "deliver": ""}}
            body = {"name": name, "mirror": mirror, **file}
            _retry(partial(client.api, f"STREAM.CREATE.{name}", body))
        at_hub.close()
        at_site.close()

    def _client(self, purpose: str, port: int) -> NatsClient:
        found = self._clients.get((purpose, str(port)))
        if found is None:
            found = self._clients[purpose, str(port)] = NatsClient(port)
        return found

    def _drop(self, purpose: str, port: int) -> None:
        found = self._clients.pop((purpose, str(port)), None)
        if found is not None:
            with contextlib.suppress(OSError):
                found.close()

    def _publish(self, subject: str, port: int, number: int, content: bytes) -> int:
        try:
            client = self._client("publish", port)
            answer = json.loads(client.request(subject, content, {"Nats-Msg-Id": str(number)}))
        except (OSError, ValueError):
            self._drop("publish", port)
            raise OSError("not accepted") from None
        if "error" in answer:
            raise OSError(str(answer["error"]))
        return int(answer["seq"])

    def publish_up(self, number: int, content: bytes) -> int:
        """Publish at the site."""
        return self._publish("up.x", self._site_port, number, content)

    def publish_down(self, number: int, content: bytes) -> int:
        """Publish at the headquarters."""
        return self._publish("down.x", self._hub_port, number, content)

    def _receive(self, stream: str, port: int, deliver: Deliver, is_done: threading.Event) -> None:
        """Read the stream by sequence, so that its content is seen and not a consumer's state."""
        sequence = 1
        while not is_done.is_set():
            try:
                found = self._client("receive", port).api(
                    f"STREAM.MSG.GET.{stream}", {"seq": sequence}
                )
            except OSError as error:
                if "no message found" not in str(error):
                    self._drop("receive", port)
                time.sleep(0.05)
                continue
            content = base64.b64decode(found["message"]["data"])
            deliver(number_in(content), int(found["message"]["seq"]))
            sequence += 1

    def receive_up(self, deliver: Deliver, is_done: threading.Event) -> None:
        """Read the mirror at the headquarters."""
        self._receive("UP", self._hub_port, deliver, is_done)

    def receive_down(self, deliver: Deliver, is_done: threading.Event) -> None:
        """Read the mirror at the site."""
        self._receive("DOWN", self._site_port, deliver, is_done)

    def cut(self) -> None:
        """Cut the link."""
        self._link.cut()

    def restore(self) -> None:
        """Restore the link."""
        self._link.restore()

    def kill_site(self) -> None:
        """Kill the leaf node."""
        self._site.kill()

    def start_site(self) -> None:
        """Start it again."""
        self._site.start()

    def memory_bytes(self) -> int:
        """Return the most memory of the leaf node."""
        self._site.look()
        return self._site.memory_bytes

    def disk_bytes(self) -> int:
        """Return the disk space of the leaf node."""
        return folder_bytes(self._folder / "site" / "data")

    def stop(self) -> None:
        """End both."""
        self._site.kill()
        self._hub.kill()
        self._link.stop()


def _retry(call: Callable[[], object]) -> None:
    ends_at = time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            call()
        except OSError:
            if time.monotonic() > ends_at:
                raise
            time.sleep(0.3)
        else:
            return
