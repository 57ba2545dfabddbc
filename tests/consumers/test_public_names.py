"""Public names are loaded at their first use, and the client package only by a running consumer."""

import subprocess
import sys

import pytest

import penstock

PROGRAM = """
import sys
import penstock
assert not any(name.startswith("penstock.") for name in sys.modules), "import penstock is not light"

@penstock.consumer(topic="t", group="g", dead_letter="dlq.t", retry=penstock.RetryPolicy())
def handle(record: penstock.ConsumerRecord) -> None: ...

loaded = [name for name in ("confluent_kafka", "penstock.node", "penstock.broker", "pydantic")
          if name in sys.modules]
assert not loaded, loaded
"""


def test_a_decorated_module_imports_neither_broker_nor_client() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=60)


@pytest.mark.parametrize("name", penstock.__all__)
def test_every_public_name_exists(name: str) -> None:
    assert getattr(penstock, name) is not None


def test_an_unknown_name() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'consume'"):
        penstock.consume  # noqa: B018
