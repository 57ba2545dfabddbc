"""One thread at a time parses source code in tests.

Pytest parses each module of Penstock on its import, because the package has a plugin. Brokers of
tests import modules on their own threads, and tracebacks are parsed too. The parser of CPython 3.11
counts its recursion in one counter for all threads: two that build a tree at the same time end with
a `SystemError` ("AST constructor recursion depth mismatch"), and the import fails. Without pytest
an import builds no tree.
"""

import ast
from functools import wraps
from threading import RLock


def parse_one_at_a_time() -> None:
    """Let all users of `ast.parse` wait for each other."""
    lock, inner = RLock(), ast.parse

    @wraps(inner)
    def parsed(*words, **options):  # type: ignore[no-untyped-def]  # noqa: ANN002, ANN003, ANN202
        with lock:
            return inner(*words, **options)

    ast.parse = parsed
