"""Compiled modules use no Python that the compiler translates wrongly (decision 0004).

- An `await` in an `except` block leaks the exception; an `await` in `finally` raises a leaked one
  again, in place of a cancellation.
- One name for exceptions of two types in one function has the first type: the second exception is
  a TypeError.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMPILED = re.findall(r'^    "([a-z_/0-9]+\.py)",$', (ROOT / "setup.py").read_text(), re.MULTILINE)
Suspension = ast.Await | ast.AsyncFor | ast.AsyncWith


def awaits_while_handling(tree: ast.AST) -> Iterator[int]:
    """Yield the lines of awaits in `except` and `finally` blocks."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Try):
            for block in (*node.handlers, *node.finalbody):
                found = (one for one in ast.walk(block) if isinstance(one, Suspension))
                yield from (one.lineno for one in found)


def names_of_two_types(tree: ast.AST) -> Iterator[str]:
    """Yield the functions that catch exceptions of several types with one name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            types: dict[str, set[str]] = {}
            for one in ast.walk(node):
                if isinstance(one, ast.ExceptHandler) and one.name and one.type:
                    types.setdefault(one.name, set()).add(ast.unparse(one.type))
            yield from (f"{node.name}: {name}" for name in types if len(types[name]) > 1)


@pytest.mark.parametrize("name", COMPILED)
def test_the_compiler_understands_it(name: str) -> None:
    tree = ast.parse((ROOT / "src" / "penstock" / name).read_text())
    assert not list(awaits_while_handling(tree)), "move the await behind the block"
    assert not list(names_of_two_types(tree)), "give each type of exception its own name"


def test_the_list_is_read() -> None:
    assert len(COMPILED) > 50
    assert "replication/copies.py" in COMPILED


def test_both_mistakes_are_found() -> None:
    tree = ast.parse(
        """
async def wrong():
    try:
        work()
    except KeyError as error:
        await pause()
    except OSError as error:
        pass
    finally:
        await end()
"""
    )
    assert list(awaits_while_handling(tree)) == [6, 10]
    assert list(names_of_two_types(tree)) == ["wrong: error"]
