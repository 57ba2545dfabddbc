"""Collects the facts of this machine for `penstock doctor`. It judges nothing and leaves no files.

If the system does not report a fact (no /proc, no time service), the fact stays unknown.
"""

import ctypes
import os
import platform
import resource
import shutil
import socket
import statistics
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from penstock.cli.doctor.facts import (
    ClockFacts,
    DirectoryFacts,
    LimitFacts,
    PortFacts,
    VersionFacts,
)
from penstock.client.transport.blocking import reason
from penstock.core.version import penstock_version

EXTRAS: Final = {
    "spark": ("pyspark", "pyarrow", "pandas"),
    "iceberg": ("pyiceberg", "duckdb"),
    "delta": ("deltalake", "duckdb"),
    "protobuf": ("grpc_tools",),
    "security": ("cryptography", "joserfc", "ldap3"),
}
_SYNCS: Final = 5
_SYNC_BYTES: Final = b"\0" * 4096
_COMPILED_MODULE: Final = "penstock.broker.connections.session"
_TIMEX_BYTES: Final = 512
_CLOCK_UNSYNCHRONIZED: Final = 5
"""TIME_ERROR of adjtimex(2)."""
_UNLIMITED: Final = 2**62


def probe_port(host: str, port: int) -> PortFacts:
    """Try to listen on the port, as a broker would."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(1)
    except (OSError, UnicodeError) as error:
        is_taken = isinstance(error, OSError) and error.errno == _address_in_use()
        owner = owner_of_port(port) if is_taken else ""
        return PortFacts(host, port, reason(error), is_taken, owner=owner)
    return PortFacts(host, port)


def _address_in_use() -> int:
    import errno

    return errno.EADDRINUSE


def owner_of_port(port: int, proc: Path = Path("/proc")) -> str:
    """Return the process that listens on this port, if the system shows it."""
    inodes = set()
    for table in ("net/tcp", "net/tcp6"):
        try:
            lines = (proc / table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            is_listening = fields[3] == "0A"
            if is_listening and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{fields[9]}]")
    if not inodes:
        return ""
    for folder in proc.glob("[0-9]*"):
        try:
            if any(os.readlink(one) in inodes for one in (folder / "fd").iterdir()):
                name = (folder / "comm").read_text(encoding="utf-8").strip()
                return f"process {folder.name}, {name}"
        except OSError:
            continue  # another user's process, or one that ended
    return ""


def probe_directory(path: str) -> DirectoryFacts:
    """Check the data directory and write a small file to it."""
    folder = Path(path).absolute()
    try:
        return _probe_folder(folder)
    except OSError as error:
        # For example a parent folder without permission: it is unknown whether the path exists.
        return DirectoryFacts(
            str(folder),
            exists=False,
            nearest=str(folder),
            is_writable=False,
            problem=_words_of(error),
        )


def _probe_folder(folder: Path) -> DirectoryFacts:
    exists = _is_there(folder)
    if exists and not folder.is_dir():
        return DirectoryFacts(str(folder), exists, is_directory=False)
    nearest = folder
    while not _is_there(nearest):
        nearest = nearest.parent
    space = shutil.disk_usage(nearest)
    sync_ms, problem = probe_sync(nearest)
    return DirectoryFacts(
        str(folder),
        exists,
        nearest=str(nearest),
        is_writable=not problem,
        free_bytes=space.free,
        total_bytes=space.total,
        filesystem=filesystem_of(nearest),
        sync_ms=sync_ms,
        problem=problem,
        partitions=_partitions_in(folder) if exists else 0,
    )


def _is_there(path: Path) -> bool:
    """Return whether the path exists; raise if this is unknown, unlike `Path.exists`."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _words_of(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def probe_sync(folder: Path) -> tuple[float | None, str]:
    """Return the time of a small write and its sync in milliseconds, or the error."""
    times = []
    try:
        with tempfile.TemporaryFile(dir=folder, prefix=".penstock-doctor-") as file:
            for _ in range(_SYNCS):
                begun = time.monotonic()
                file.write(_SYNC_BYTES)
                file.flush()
                os.fdatasync(file.fileno())
                times.append((time.monotonic() - begun) * 1000)
    except OSError as error:
        return None, _words_of(error)
    return statistics.median(times), ""


def filesystem_of(folder: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str:
    """Return the type of a folder's file system."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    found, longest = "", -1
    for line in lines:
        before, _, after = line.partition(" - ")
        place = before.split()[4].replace("\\040", " ")
        is_above = folder == Path(place) or Path(place) in folder.parents
        # Of two mounts at one path, the later one is visible.
        if is_above and len(place) >= longest:
            found, longest = after.split()[0], len(place)
    return found


def _partitions_in(folder: Path) -> int:
    try:
        return sum(1 for one in folder.rglob("*.log") if one.name == "0" * 20 + ".log")
    except OSError:
        return 0


def probe_limits() -> LimitFacts:
    """Return the limits of open files and memory."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return LimitFacts(
        _UNLIMITED if soft == resource.RLIM_INFINITY else soft,
        _UNLIMITED if hard == resource.RLIM_INFINITY else hard,
        _memory_available_bytes(),
        _memory_limit_bytes(),
    )


def _memory_available_bytes() -> int:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    for line in lines:
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            return int(rest.split()[0]) * 1024
    return 0


def _memory_limit_bytes() -> int:
    try:
        text = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
    except OSError:
        return 0
    return int(text) if text.isdecimal() else 0


def probe_clock(broker_newest_ms: int | None) -> ClockFacts:
    """Return the facts of the clocks; the newest time of the broker's records is an argument."""
    times = [time.monotonic_ns() for _ in range(1000)]
    return ClockFacts(
        time.time_ns() // 1_000_000,
        times == sorted(times),
        _is_synchronized(),
        broker_newest_ms,
    )


def _is_synchronized() -> bool | None:
    """Return the kernel's answer, for any time service; None if the kernel cannot be queried."""
    try:
        ask = ctypes.CDLL(None).adjtimex
    except (OSError, AttributeError):
        return None  # not Linux
    # All zero: the call changes nothing and only reads. The structure has some 200 bytes.
    state = int(ask(ctypes.create_string_buffer(_TIMEX_BYTES)))
    return None if state < 0 else state != _CLOCK_UNSYNCHRONIZED


def probe_versions() -> VersionFacts:
    """Return the installed versions, without importing the packages."""
    spec = find_spec(_COMPILED_MODULE)
    is_compiled = spec is not None and not (spec.origin or "").endswith(".py")
    extras = {
        name: all(find_spec(package) is not None for package in packages)
        for name, packages in EXTRAS.items()
    }
    python = f"{platform.python_version()} ({sys.implementation.name})"
    return VersionFacts(penstock_version(), python, is_compiled, extras)
