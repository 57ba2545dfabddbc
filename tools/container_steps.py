"""Runs the steps of the container file in bare Debian systems, and then the result.

    python tools/container_steps.py [--folder FOLDER]      as root; needs debootstrap

A stage is a root directory: `FROM` becomes a minimal Debian with Python, `RUN` a command in it,
`COPY` a copy. Then the last stage's program is started as its user, with its environment, on free
ports. The test sends and reads a record, runs the health check, and stops it with SIGTERM (exit
code 0).

Guarantees: every instruction was carried out, or the run fails; an unknown instruction is an error.
It is not a container: it uses this machine's network and kernel, and Debian's Python instead of the
image's.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "deploy" / "container" / "Containerfile"
SYSTEM_SECONDS_MAX = 1_200
STEP_SECONDS_MAX = 2_400
COMMAND_SECONDS_MAX = 60
PASSED_ON = ("PIP_", "SSL_", "REQUESTS_")
"""Prefixes of variables that configure package downloads on this machine."""
FETCHING = (
    "etc/apt",
    "etc/pip.conf",
    "etc/resolv.conf",
    "etc/ssl",
    "usr/local/share/ca-certificates",
)
"""Files that configure the same."""


@dataclass
class Stage:
    """One system during its build."""

    name: str
    root: Path
    environment: dict[str, str] = field(default_factory=dict)
    user: str = "0"
    folder: str = "/"
    entry_point: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    health: list[str] = field(default_factory=list)


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """Yield each instruction with its argument; comments and continued lines are resolved."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in re.sub(r"\\\n", " ", "\n".join(lines)).splitlines():
        if line.strip():
            name, _, argument = line.strip().partition(" ")
            yield name.upper(), argument.strip()


def bare_system(folder: Path) -> Path:
    """Return a minimal Debian with Python and pip."""
    root = folder / "base"
    sources = Path("/etc/apt/sources.list.d/debian.sources").read_text()
    found = re.search(r"^URIs:\s*(\S+)", sources, re.MULTILINE)
    if found is None:
        raise SystemExit("debian.sources names no mirror: this needs a Debian system")
    packages = "python3,python3-pip,python3-dev,ca-certificates"
    subprocess.run(
        ["debootstrap", "--variant=minbase", f"--include={packages}", "bookworm", root, found[1]],
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=SYSTEM_SECONDS_MAX,
    )
    for name in FETCHING:
        source = Path("/") / name
        if source.exists():
            # The system already has some of them, and links among them.
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["cp", "-aT", "--remove-destination", source, root / name], check=True)
    # As a container runtime does; a bare system cannot resolve its own name.
    (root / "etc" / "hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")
    return root


def run_inside(stage: Stage, words: list[str], extra: Mapping[str, str]) -> list[str]:
    """Return the command that runs these words in a stage's system, as its user."""
    passed = {name: value for name, value in os.environ.items() if name.startswith(PASSED_ON)}
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    environment = {"PATH": path, "HOME": stage.folder, "PIP_BREAK_SYSTEM_PACKAGES": "1"}
    environment |= passed | stage.environment | dict(extra)
    told = [f"{name}={value}" for name, value in environment.items()]
    change = ["chroot", f"--userspec={stage.user}:{stage.user}", str(stage.root)]
    inside = f"cd {shlex.quote(stage.folder)} && exec {shlex.join(words)}"
    return ["env", "-i", *told, *change, "sh", "-c", inside]


def copy(stage: Stage, stages: Mapping[str, Stage], argument: str) -> None:
    """Carry out COPY: from another stage, of one file, or of all the project's files."""
    words = argument.split()
    if words[0].startswith("--from="):
        source = stages[words[0].removeprefix("--from=")].root / words[1].lstrip("/")
        shutil.copytree(source, stage.root / words[2].lstrip("/"), dirs_exist_ok=True)
        return
    target = stage.root / words[1].lstrip("/")
    if words[0] != ".":
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / words[0], target)
        return
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target / name)


def apply(stage: Stage, stages: Mapping[str, Stage], name: str, argument: str) -> None:
    """Carry out one instruction."""
    if name == "RUN":
        command = run_inside(stage, ["sh", "-c", argument], {})
        subprocess.run(command, check=True, timeout=STEP_SECONDS_MAX)
    elif name == "COPY":
        copy(stage, stages, argument)
    elif name == "ENV":
        stage.environment |= dict(word.split("=", 1) for word in shlex.split(argument))
    elif name == "USER":
        stage.user = argument
    elif name == "WORKDIR":
        stage.folder = argument
    elif name == "ENTRYPOINT":
        stage.entry_point = json.loads(argument)
    elif name == "CMD":
        stage.command = json.loads(argument)
    elif name == "HEALTHCHECK":
        stage.health = json.loads(argument[argument.index("[") :])
    elif name not in ("EXPOSE", "STOPSIGNAL", "VOLUME"):
        raise SystemExit(f"{name} {argument}: not known here")


def build(folder: Path, text: str) -> Stage:
    """Build every stage of the file; return the last one, the image."""
    base = bare_system(folder)
    stages: dict[str, Stage] = {}
    stage: Stage | None = None
    for name, argument in instructions(text):
        print(f"--- {name} {argument}", flush=True)
        if name == "FROM":
            label = argument.split(" AS ")[1] if " AS " in argument else "image"
            stage = stages[label] = Stage(label, folder / label)
            subprocess.run(["cp", "-a", "--reflink=auto", base, stage.root], check=True)
        else:
            assert stage is not None, "a container file begins with FROM"
            apply(stage, stages, name, argument)
    assert stage is not None, "a container file has a FROM"
    return stage


@contextmanager
def mounted(root: Path) -> Iterator[None]:
    """Mount /proc and /dev into the system while the block runs."""
    places = [root / "proc", root / "dev"]
    for place in places:
        subprocess.run(["mount", "--bind", f"/{place.name}", place], check=True)
    try:
        yield
    finally:
        for place in reversed(places):
            subprocess.run(["umount", "--lazy", place], check=True)


def try_out(image: Stage, port: int, admin_port: int) -> None:
    """Start the image, send and read a record, check its health, stop it."""
    ports = {
        "PENSTOCK_LISTENER__PORT": str(port),
        "PENSTOCK_ADMIN__PORT": str(admin_port),
        "PENSTOCK_ADMIN_URL": f"http://127.0.0.1:{admin_port}",
    }
    program = [*image.entry_point, *image.command]
    with subprocess.Popen(run_inside(image, program, ports), stdout=subprocess.PIPE) as broker:
        assert broker.stdout is not None
        try:
            print(broker.stdout.readline().decode(), end="", flush=True)
            there = ["--bootstrap-server", f"localhost:{port}"]
            sent = [*image.entry_point, "produce", "orders", *there]
            _done(run_inside(image, sent, ports), b"hello\n")
            read = [*image.entry_point, "consume", "orders", "--count", "1", *there]
            assert _done(run_inside(image, read, ports), b"") == b"hello\n"
            health = _done(run_inside(image, image.health, ports), b"")
            assert json.loads(health)["ready"], health
        finally:
            broker.send_signal(signal.SIGTERM)
        assert broker.wait(COMMAND_SECONDS_MAX) == 0


def _done(command: list[str], fed: bytes) -> bytes:
    return subprocess.run(
        command, input=fed, check=True, stdout=subprocess.PIPE, timeout=COMMAND_SECONDS_MAX
    ).stdout


def main(arguments: list[str]) -> int:
    """Build and try out the image in a new folder."""
    parser = argparse.ArgumentParser(prog="python tools/container_steps.py")
    parser.add_argument("--folder", type=Path, help="folder for the systems, 2 GB")
    parser.add_argument("--port", type=int, default=19_092)
    options = parser.parse_args(arguments)
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        raise SystemExit("this needs root and debootstrap: apt-get install debootstrap")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        image = build(Path(folder), FILE.read_text())
        with mounted(image.root):
            try_out(image, options.port, options.port + 1)
    print("every step of the container file was done, and its broker works")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
