"""Make the pages of the API reference, one a package, while mkdocs builds the site."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(Path(__file__).parent))

from public import PACKAGES, PLACES, is_documented, summary_of  # noqa: E402

EXAMPLES = {
    ".graph": "recipes.md", ".graph.nn": "quick_start.md", ".graph.layers": "coming_from.md",
    ".graph.train": "quick_start.md", ".checkpoint": "checkpoints.md", ".summary": "summaries.md",
    ".data": "data.md", ".programs": "programs.md", ".distributed": "servers.md",
    ".executors": "pipeline_workers.md", ".monitor": "monitor.md", ".jobs": "jobs.md",
    ".testing": "testing.md", ".runtime": "cancellation.md",
    ".hooks": "hooks.md", "": "quick_start.md",
}  # fmt: skip
"""The page with examples for the names of a package that have none of their own."""


def on_files(files: Files, config: Any) -> Files:
    """Add the pages. Called by mkdocs."""
    for package in PACKAGES:
        name = f"reference/asyncmon{package}.md"
        files.append(File.generated(config, name, content=page_of(package, mentions())))
    return files


def on_page_markdown(markdown: str, page: Page, config: Any, files: Files) -> str:
    """Point links to files outside of this folder to the repository. Called by mkdocs."""
    if page.file.src_uri.startswith("reference/"):
        return markdown  # above it is this folder
    return re.sub(r"\]\(\.\./(?!reference/)([^)]+)\)", rf"]({config.repo_url}/blob/main/\1)", markdown)


def mentions() -> dict[str, str]:
    """Return the pages by name, each with the text of its code."""
    return {
        path.name: "\n".join(re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL))
        for path in sorted((ROOT / "docs").glob("*.md"))
    }


def page_of(package: str, code: dict[str, str]) -> str:
    """Return the page of a package: each public name that has not been documented before."""
    module = importlib.import_module(f"asyncmon{package}")
    parts = [f"# {module.__name__}\n\n{summary_of(module)}\n"]
    others: dict[str, list[str]] = {}
    for name in module.__all__:
        value = getattr(module, name)
        place = f"{module.__name__}.{name}"
        if not is_documented(value):
            parts.append(f"## `{name}`\n\n{summary_of(value)}\n")
        elif PLACES[id(value)].page != module.__name__:
            there = PLACES[id(value)]
            others.setdefault(there.page, []).append(
                f"| [`{name}`][{there.path}] | {summary_of(value)} |"
            )
        else:
            parts.append(f"::: {place}\n\n{example_of(name, value, package, code)}\n")
    for page, rows in others.items():
        parts.append(f"## Names of {page}\n\n| name | |\n|---|---|\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def example_of(name: str, value: Any, package: str, code: dict[str, str]) -> str:
    """Return links to examples; nothing for an object whose docstring has one."""
    if "Example" in (inspect.getdoc(value) or ""):
        return ""
    used = [page for page, text in code.items() if re.search(rf"\b{name}\b", text)][:3]
    links = [f"[{page.removesuffix('.md')}](../{page})" for page in used or [EXAMPLES[package]]]
    return f"Examples: {', '.join(links)}."
