"""Run the fuzz targets: every `fuzz_*` function of tests/fuzz, each for its share of the time.

A target accepts bytes and returns, or raises an error that is a finding. Inputs start from the
module's `CORPUS` (whole, valid messages), and a seeded generator mutates them, so the seed
reproduces a finding. docs/proofs.md reports ten minutes over all targets.

    python tools/fuzz.py --seconds 600 --seed 1
"""

import argparse
import importlib.util
import random
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
Target = Callable[[bytes], object]
INTERESTING = (0x00, 0x01, 0x7F, 0x80, 0xFF)
SIZES_MAX = 4096


def targets() -> dict[str, tuple[Target, list[bytes]]]:
    """Return every target by name, with its corpus."""
    # Targets share builders with other tests, whose package is at the root.
    sys.path.insert(0, str(ROOT))
    found: dict[str, tuple[Target, list[bytes]]] = {}
    for path in sorted((ROOT / "tests" / "fuzz").glob("test_*.py")):
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        corpora: dict[str, Sequence[bytes]] = getattr(module, "CORPUS", {})
        for name in dir(module):
            if name.startswith("fuzz_"):
                corpus = list(corpora.get(name, ())) or [b""]
                found[f"{path.stem}:{name}"] = (getattr(module, name), corpus)
    return found


def mutate(generator: random.Random, corpus: list[bytes]) -> bytes:
    """Return one input: random bytes, or a corpus entry with a few changes."""
    if generator.random() < 0.1:
        return generator.randbytes(generator.randrange(256))
    data = bytearray(generator.choice(corpus))
    for _ in range(generator.randrange(1, 6)):
        kind = generator.randrange(6)
        at = generator.randrange(len(data) + 1)
        if kind == 0 and data:
            data[at % len(data)] = generator.choice(INTERESTING)
        elif kind == 1 and data:
            data[at % len(data)] ^= 1 << generator.randrange(8)
        elif kind == 2:
            del data[at : at + generator.randrange(1, 17)]
        elif kind == 3:
            data[at:at] = generator.randbytes(generator.randrange(1, 9))
        elif kind == 4:
            end = at + generator.randrange(1, 33)
            data[at:at] = data[at:end]
        else:
            data[at : at + 4] = generator.choice(
                (b"\x7f\xff\xff\xff", b"\xff" * 4, b"\x80" + b"\0" * 3)
            )
    return bytes(data[:SIZES_MAX])


def run(name: str, target: Target, corpus: list[bytes], seed: int, seconds: float) -> int | None:
    """Return the number of inputs within the time, or None after a finding, which is printed."""
    generator = random.Random(f"{seed}:{name}")
    end = time.monotonic() + seconds
    count = 0
    while time.monotonic() < end:
        for _ in range(100):
            data = mutate(generator, corpus)
            count += 1
            try:
                target(data)
            except Exception:  # noqa: BLE001 (every error is a finding)
                print(f"FINDING {name} seed {seed} input {count}: {data.hex()}")
                traceback.print_exc()
                return None
    return count


def main() -> int:
    """Run all targets; return 1 if there was a finding."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="for all targets together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="part of a target's name")
    arguments = parser.parse_args()
    chosen = {name: value for name, value in targets().items() if arguments.only in name}
    share = arguments.seconds / max(1, len(chosen))
    findings = 0
    for name, (target, corpus) in chosen.items():
        count = run(name, target, corpus, arguments.seed, share)
        findings += count is None
        if count is not None:
            print(f"{name}: {count} inputs, no finding", flush=True)
    print(f"{len(chosen)} targets, {findings} findings, {arguments.seconds:.0f} s")
    passed = len(chosen) - findings
    print(f"{passed} passed, {findings} failed")
    return 1 if findings or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
