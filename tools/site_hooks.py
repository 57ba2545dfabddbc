"""Adds pages to the documentation's site that are outside the folder `docs`.

`ARCHITECTURE.md`, `CONTRIBUTING.md`, `CHANGELOG.md`, `SECURITY.md` and the benchmarks' README stay
where a newcomer to the repository expects them; the site shows the same text. A link from a page to
a repository file that is not a page becomes plain text, because the site does not contain the file.
A link to a missing file stays unchanged, and the strict build rejects it.

Guarantees: the site has no second copy of a text. It is not a general converter of links.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
ELSEWHERE = {
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changes.md",
    "SECURITY.md": "security.md",
    "benchmarks/README.md": "benchmarks.md",
}
"""Files of the repository, by the page that shows them."""
SOURCE_OF = {page: source for source, page in ELSEWHERE.items()}
LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<target>[^)#\s]*)(?P<anchor>#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside `docs`."""
    for source, page in ELSEWHERE.items():
        text = (ROOT / source).read_text()
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the page with links between repository files as links between pages."""
    del config
    pages = {file.src_uri for file in files.documentation_pages()}
    return with_links(markdown, page.file.src_uri, pages)


def with_links(markdown: str, page: str, pages: set[str]) -> str:
    """Return the text of a page, with each link to a repository file resolved."""
    source = SOURCE_OF.get(page, f"docs/{page}")

    def resolved(match: re.Match[str]) -> str:
        target = match["target"]
        if not target or "://" in target or target.startswith("mailto:"):
            return match.group()
        file = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        shown = ELSEWHERE.get(file, file.removeprefix("docs/"))
        if shown in pages:
            relative = posixpath.relpath(shown, posixpath.dirname(page) or ".")
            return f"[{match['text']}]({relative}{match['anchor'] or ''})"
        if not file.startswith("docs/") and (ROOT / file).exists():
            return match["text"]
        return match.group()

    return LINK.sub(resolved, markdown)
