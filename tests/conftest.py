"""For all tests: what a slow machine makes asyncio say is not what a test looks for.

In development mode asyncio warns about callbacks that took over 100 ms. On a loaded machine that
is any of them, and tests that look at what was logged would find it.
"""

import logging

import pytest

logging.getLogger("asyncio").setLevel(logging.ERROR)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--rewrite`: golden files get what really happens; read the difference before a commit."""
    parser.addoption("--rewrite", action="store_true", help="write golden files anew")
