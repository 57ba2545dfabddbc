"""The page of settings has each key of a named listener, with its description and its default."""

import importlib.util
from pathlib import Path

import pytest
from pydantic.fields import FieldInfo

from penstock.core.settings.config import load_settings
from penstock.core.settings.listener_declarations import NamedListener, TlsFileSettings

ROOT = Path(__file__).resolve().parents[2]


def listeners_part() -> str:
    spec = importlib.util.spec_from_file_location(
        "generate_reference", ROOT / "tools" / "generate_reference.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page: str = module.settings_page()
    return page.split("\n## [[listeners]]\n")[1].split("\n## ", maxsplit=1)[0]


PART = listeners_part()
KEYS, TLS_KEYS = PART.split("### tls of a listener")


@pytest.mark.parametrize(
    ("table", "name", "field"),
    [
        *((KEYS, name, field) for name, field in NamedListener.model_fields.items()),
        *((TLS_KEYS, name, field) for name, field in TlsFileSettings.model_fields.items()),
    ],
)
def test_every_key_is_on_the_page(table: str, name: str, field: FieldInfo) -> None:
    (row,) = (line for line in table.splitlines() if line.startswith(f"| `{name}` |"))
    assert field.description is not None
    assert field.description.endswith(".")
    assert row.endswith(f"| {field.description} |")
    assert ("| required |" in row) == field.is_required()


def test_the_rows_have_type_default_and_kafkas_name() -> None:
    assert (
        '| `client_auth` | `none` or `requested` or `required` | `"none"` | `ssl.client.auth` |'
        in (TLS_KEYS)
    )
    assert "| `mechanisms` | list of `PLAIN`, `SCRAM-SHA-256`, " in KEYS
    assert "| `reauthentication_ms_max` | integer, in milliseconds | unset |" in KEYS
    assert "| `tls` | table, see below | unset |  |" in KEYS


def test_the_example_is_valid() -> None:
    example = PART.split("```toml\n")[1].split("```")[0]
    (listener,) = load_settings(example, {}, {}).settings.listeners
    assert listener.protocol == "SASL_SSL"


def test_the_page_in_the_tree_has_it() -> None:
    page = ROOT / "docs" / "reference" / "settings.md"
    assert f"\n## [[listeners]]\n{PART}" in page.read_text(encoding="utf-8")
