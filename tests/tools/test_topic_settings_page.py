"""The page of topic settings is complete, and says which settings have an effect."""

import importlib.util
from pathlib import Path

from penstock.cluster.configs.group_configs import GROUP_CONFIGS
from penstock.cluster.configs.topic_configs import TOPIC_CONFIGS

ROOT = Path(__file__).resolve().parents[2]


def generated() -> str:
    spec = importlib.util.spec_from_file_location(
        "generate_reference", ROOT / "tools" / "generate_reference.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page: str = module.topic_settings_page()
    return page


def test_every_setting_is_on_the_page() -> None:
    page = generated()
    used, unused = page.split("## Settings without effect")
    unused, groups = unused.split("## Group settings")
    for name, config in TOPIC_CONFIGS.items():
        assert (f"\n## {name}\n" in used) == config.honoured
        assert (f"| `{name}` |" in unused) != config.honoured
        if config.honoured:
            text = used.split(f"\n## {name}\n")[1].split("\n## ")[0]
            assert config.documentation in text
            default = f"`{config.default}`" if config.default else "empty"
            assert f"- default: {default}\n" in text
    assert all(f"\n### {name}\n" in groups for name in GROUP_CONFIGS)
    assert "- broker setting: [`topic_defaults.retention_ms`]" in used
    assert "at least -1" in used.split("\n## retention.ms\n")[1].split("\n## ")[0]


def test_the_page_in_the_tree_is_the_generated_one() -> None:
    """`make check` compares all pages; this one is quick to compare."""
    stored = (ROOT / "docs" / "reference" / "topic-settings.md").read_text(encoding="utf-8")
    assert stored == generated()
