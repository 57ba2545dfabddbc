"""The settings in the guide on the edge are valid, and its commands exist."""

import re

from penstock.cli.pipe.command import pipe
from penstock.core.settings.config import load_settings
from tests.docs.test_guides import DOCS

GUIDE = (DOCS / "guides" / "edge.md").read_text()


def test_the_declared_pipes_are_valid() -> None:
    blocks = re.findall(r"```toml\n(.*?)```", GUIDE, flags=re.DOTALL)
    declared = [block for block in blocks if block.startswith("[[pipes]]") and ":9092" in block]
    assert declared
    for block in declared:
        assert load_settings(block, {}, {}).settings.pipes


def test_the_pipe_commands_exist() -> None:
    named = set(re.findall(r"penstock pipe ([a-z]+)", GUIDE))
    assert {"list", "status", "promote", "restore"} <= named <= set(pipe.commands)
