"""The site's links: files of the repository become pages, plain words, or an error of the build."""

import pytest

from tools.site_hooks import with_links

PAGES = {"architecture.md", "benchmarks.md", "guides/groups.md", "behaviour.md"}


@pytest.mark.parametrize(
    ("page", "written", "shown"),
    [
        (
            "guides/groups.md",
            "[limits](../behaviour.md#limits)",
            "[limits](../behaviour.md#limits)",
        ),
        ("guides/groups.md", "[map](../../ARCHITECTURE.md)", "[map](../architecture.md)"),
        ("guides/groups.md", "[speed](../../benchmarks/README.md)", "[speed](../benchmarks.md)"),
        ("architecture.md", "[groups](docs/guides/groups.md)", "[groups](guides/groups.md)"),
        ("architecture.md", "[settings](pyproject.toml)", "settings"),
        ("behaviour.md", "[Kafka](https://kafka.apache.org)", "[Kafka](https://kafka.apache.org)"),
        ("behaviour.md", "![a picture](../pyproject.toml)", "![a picture](../pyproject.toml)"),
        ("behaviour.md", "[nothing](guides/nothing.md)", "[nothing](guides/nothing.md)"),
        ("behaviour.md", "[here](#limits)", "[here](#limits)"),
    ],
)
def test_links(page: str, written: str, shown: str) -> None:
    assert with_links(f"see {written}.", page, PAGES) == f"see {shown}."
