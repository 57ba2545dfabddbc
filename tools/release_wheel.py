"""The compiled wheel of this checkout, built once for each content: prints its path.

    python -m tools.release_wheel

The name of its folder in the user's cache has a hash over everything that the build reads: the
package, the build files, the version of Python, the machine. A checkout with the same content takes
the wheel from there; a build takes minutes. New versions of Cython and mypy alone cause no build.
The four newest wheels are kept.

It is for `make release`. A wheel for others is built by `make wheel`, without a cache.
"""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.oracle.cache import built, content_key

ROOT: Final = Path(__file__).resolve().parent.parent
BUILD_FILES: Final = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "NOTICE")
KEPT: Final = 4
LEFT_BY_BUILDS: Final = ("lib*", "temp*", "bdist*")
"""Folders of setuptools. Outputs of proofs and noted seeds stay beside them: hours of work."""


def main() -> int:
    """Build the wheel if the cache lacks it; print its path."""
    place = built(f"wheels/{_key()}", _build)
    place.touch()
    for old in sorted(place.parent.iterdir(), key=lambda path: path.stat().st_mtime)[:-KEPT]:
        shutil.rmtree(old)
    (wheel,) = place.glob("*.whl")
    print(wheel)
    return 0


def _build(folder: Path) -> None:
    for old in (one for names in LEFT_BY_BUILDS for one in (ROOT / "build").glob(names)):
        shutil.rmtree(old)
    subprocess.run(
        (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", folder, ROOT),
        check=True,
        env={**os.environ, "PENSTOCK_COMPILE": "1"},
        stdout=sys.stderr,
    )


def _key() -> str:
    compiler = [os.environ.get(name) for name in ("CC", "CFLAGS", "LDFLAGS")]
    parts: list[str | Path] = [sys.version, platform.machine(), str(compiler)]
    for path in _inputs():
        parts += (str(path.relative_to(ROOT)), path)
    return content_key(*parts)


def _inputs() -> Iterator[Path]:
    """The files that the build reads, without what a build leaves beside them."""
    for path in sorted((ROOT / "src").rglob("*")):
        if path.is_file() and path.suffix not in (".pyc", ".so") and ".egg-info" not in str(path):
            yield path
    yield from (ROOT / name for name in BUILD_FILES if (ROOT / name).exists())


if __name__ == "__main__":
    sys.exit(main())
