"""What mkdocs.yml adds to mkdocs: sources as pages, the version, no other hosts, a full search.

The documents link to tests, examples and other files of the repository by their paths, which is
what a reader of the repository needs. In the site each of those files is a page, and each test a
heading of it, so the same links lead there, and `mkdocs build --strict` checks them.
"""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from cassieq_spark import __version__

_ROOT = Path(__file__).parents[1]
_LINK = re.compile(r"\]\(\.\./(?P<path>[^)#]+)(?P<anchor>#[^)]*)?\)")
_LANGUAGES = {".ipynb": "json", ".py": "python", ".toml": "toml", ".yml": "yaml", ".cql": "sql"}
_VERSION = "<!-- version -->"
#: What readers search for; each has to be found in a page of docs/.
_SEARCHED = ("airflow", "cron", "databricks", "delta", "emr", "iceberg", "kubernetes", "parquet")
_DIALOG = '<div class="md-search" data-md-component="search" role="dialog"'
_PICTURE = re.compile(r"""<p>(?=<img [^>]*src="[^"]+\.svg")""")
_FROM_ELSEWHERE = re.compile(
    r"""<(?:script|img|iframe)\b[^>]*\bsrc=["']?(?:https?:)?//[^\s"'>]+"""
    r"""|<link\b(?=[^>]*\brel=["']?(?:stylesheet|preload|icon))[^>]*\bhref=["']?(?:https?:)?//"""
    r"""[^\s"'>]+|@import\s+url\((?:https?:)?//[^)]+\)"""
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each file outside docs/ that a document links to."""
    pages = [file for file in files if file.src_uri.endswith(".md")]
    linked = {found["path"] for page in pages for found in _LINK.finditer(page.content_string)}
    for path in sorted(linked):
        if not (_ROOT / path).is_file():
            raise PluginError(f"a document links to {path}, which is no file of the repository")
        files.append(File.generated(config, f"source/{path}.md", content=_page_of(path)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links out of docs/ lead to those pages, and put the version into the first page."""
    del config, files
    if page.file.src_uri.startswith("source/"):
        return markdown
    if page.file.src_uri == "index.md":
        if _VERSION not in markdown:
            raise PluginError(f"index.md lacks {_VERSION}, where the version is shown")
        markdown = markdown.replace(_VERSION, f"Version {__version__} ·")
    return _LINK.sub(
        lambda found: f"](source/{found['path']}.md{found['anchor'] or ''})", markdown
    )


def on_post_page(output: str, **_: Any) -> str:
    """Name the dialog of the search, and let keys move pictures that are wider than a phone."""
    output = output.replace(_DIALOG, f'{_DIALOG} aria-label="Search"')
    return _PICTURE.sub('<p tabindex="0">', output)


@event_priority(-100)  # after the plugin that writes the index
def on_post_build(config: MkDocsConfig, **_: Any) -> None:
    """Refuse a site that would load anything from another host, or whose search misses words."""
    site = Path(config.site_dir)
    for file in sorted([*site.rglob("*.html"), *site.rglob("*.css")]):
        if found := _FROM_ELSEWHERE.search(file.read_text(encoding="utf-8")):
            raise PluginError(f"{file.relative_to(site)} loads from another host: {found[0]}")
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    texts = [f"{entry['title']} {entry['text']}".lower() for entry in index["docs"]]
    for word in _SEARCHED:
        if not any(re.search(rf"\b{word}\b", text) for text in texts):
            raise PluginError(f"the search of the site does not find {word!r}")


def _page_of(path: str) -> str:
    text = (_ROOT / path).read_text(encoding="utf-8")
    head = f"---\nsearch:\n  exclude: true\n---\n# {path}\n\n"
    if path.endswith(".md"):
        return head + _without_links(text.partition("\n")[2])
    if not path.startswith("tests/"):
        return head + _code(text, _LANGUAGES.get(Path(path).suffix, "text"))
    return head + "\n".join(
        (f"## {name} {{ #{name} }}\n\n" if name else "") + _code(part, "python")
        for name, part in _parts(text)
    )


def _parts(text: str) -> list[tuple[str, str]]:
    """A module of tests, cut before each test and each class of them."""
    lines = text.splitlines(keepends=True)
    starts = [(1, "")]
    for node in ast.parse(text).body:
        name = _test_name(node)
        if name:
            decorators = getattr(node, "decorator_list", [])
            starts.append((min([node.lineno, *(each.lineno for each in decorators)]), name))
    stops = [line for line, _ in starts[1:]] + [len(lines) + 1]
    return [
        (name, "".join(lines[start - 1 : stop - 1]).strip("\n") + "\n")
        for (start, name), stop in zip(starts, stops, strict=True)
    ]


def _test_name(node: ast.stmt) -> str:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return node.name if node.name.startswith(("test_", "Test")) else ""
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        name = node.targets[0].id
        return name if name.startswith("Test") else ""
    return ""


def _code(text: str, language: str) -> str:
    return f"````{language}\n{text}````\n"


def _without_links(text: str) -> str:
    """A document of the repository's root: what leads into docs/ leads there, the rest is text."""
    depth = "../"
    text = re.sub(r"\]\(docs/([\w-]+\.md)(#[^)]*)?\)", rf"]({depth}\1\2)", text)
    return re.sub(r"\[([^]]+)\]\((?!\.\./|https?:|#)[^)]*\)", r"\1", text)
