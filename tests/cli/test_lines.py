"""Available input is passed on at once, and lines survive every cut."""

import os
import tracemalloc
from pathlib import Path

import pytest

from penstock.cli.text import lines as lines_module
from penstock.cli.text.lines import bursts_of_lines
from penstock.core.errors import InvalidRequestError


def test_a_slow_pipe_is_not_waited_for() -> None:
    reading, writing = os.pipe()
    try:
        bursts = bursts_of_lines(reading)
        os.write(writing, b"one\n")
        assert next(bursts) == [b"one"]
        os.write(writing, b"two\nthr")
        assert next(bursts) == [b"two"]
        os.write(writing, b"ee\n\nlast")
        assert next(bursts) == [b"three", b""]
    finally:
        os.close(writing)
    assert list(bursts) == [[b"last"]]
    os.close(reading)


def test_a_file_comes_in_large_bursts_and_whole(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    wanted = [b"%d" % number * (number % 50) for number in range(40_000)]
    path.write_bytes(b"\n".join(wanted) + b"\n")
    descriptor = os.open(path, os.O_RDONLY)
    bursts = list(bursts_of_lines(descriptor))
    os.close(descriptor)
    assert [line for burst in bursts for line in burst] == wanted
    assert len(bursts) < 20


def test_nothing_is_nothing(tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.touch()
    descriptor = os.open(path, os.O_RDONLY)
    assert list(bursts_of_lines(descriptor)) == []
    os.close(descriptor)


def test_a_line_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines_module, "LINE_BYTES_MAX", 1000)
    path = tmp_path / "long"
    path.write_bytes(b"x" * 2000)
    descriptor = os.open(path, os.O_RDONLY)
    with pytest.raises(InvalidRequestError, match="line 1 is longer than 1,000 bytes"):
        list(bursts_of_lines(descriptor))
    os.close(descriptor)


def test_a_long_line_is_refused_by_its_length_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of 120 MB took minutes: each read copied everything before it.

    Bytes that are copied are counted, not seconds: twice the length is enough, once to join.
    """
    monkeypatch.setattr(lines_module, "LINE_BYTES_MAX", 4_000_000)
    given = [b"short\n\n", *[b"x" * 65_536] * 80]
    reads = iter(given)
    taken: list[bytes] = []

    def read(_descriptor: int) -> bytes:
        taken.append(next(reads))
        return taken[-1]

    monkeypatch.setattr(lines_module, "_read_burst", read)
    bursts = bursts_of_lines(-1)
    assert next(bursts) == [b"short", b""]
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRequestError, match="line 3 is longer than 4,000,000 bytes"):
            next(bursts)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(taken) == 1 + 4_000_000 // 65_536 + 1
    assert peak_bytes < 2 * 4_000_000


def test_a_line_of_many_reads_is_joined_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = iter([b"a", b"b", b"c\nd", b"e\n\n", b"f", b""])
    monkeypatch.setattr(lines_module, "_read_burst", lambda _: next(reads))
    assert list(bursts_of_lines(-1)) == [[b"abc"], [b"de", b""], [b"f"]]
