"""Builds the one C extension; everything else about the package is in pyproject.toml.

The extension is optional: without a C compiler the install succeeds, the same file runs as plain
Python, and the broker says at its start that it is slower.
"""

from Cython.Build import cythonize
from setuptools import Extension, setup

SCAN = Extension(
    "penstock.records.scan",
    sources=["src/penstock/records/scan.py"],
    depends=["src/penstock/records/scan.pxd"],
    extra_compile_args=["-O3", "-g0"],
)

EXTENSIONS = cythonize(
    [SCAN],
    include_path=["src"],
    build_dir="build",
    compiler_directives={
        "language_level": "3",
        # scan.py checks every index itself, before it reads; tests and fuzzing hold it to that.
        "boundscheck": False,
        "wraparound": False,
        "initializedcheck": False,
        "annotation_typing": False,
    },
)
for extension in EXTENSIONS:
    # Here and not above, because cythonize makes new objects and forgets it.
    extension.optional = True

setup(ext_modules=EXTENSIONS)
