"""The hooks of the documentation pass ``mypy --strict``, each as it stands there."""

from __future__ import annotations

import ast
import builtins
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import doc_page
from tests.test_docs import PAGES, name


def modules(page: Path) -> Iterator[tuple[int, str]]:
    """Yield the Python of a page: each file that it writes, and its other blocks, by program."""
    for program in doc_page.programs(page):
        blocks = [block for block in program if block.language == "python"]
        for block in blocks:
            if "file" in block.marks:
                yield block.line, block.text
        shown = [block for block in blocks if "file" not in block.marks]
        if shown:
            yield shown[0].line, "".join(block.text for block in shown)


def is_hook(node: ast.AST) -> bool:
    if isinstance(node, ast.ClassDef):
        return any(ast.unparse(base).endswith("SessionRunHook") for base in node.bases)
    decorators = node.decorator_list if isinstance(node, ast.AsyncFunctionDef) else []
    return any(ast.unparse(one).startswith("am.every(") for one in decorators)


def hooks_alone(text: str) -> str:
    """Return the imports and the hooks of a module; other names are declared. Empty without hooks."""
    lines = text.splitlines()
    tree = ast.parse(text).body
    hooks = [one for one in tree if any(map(is_hook, ast.walk(one)))]
    if not hooks:
        return ""
    imports = [one for one in tree if isinstance(one, ast.Import | ast.ImportFrom)]
    nodes = [node for one in hooks for node in ast.walk(one)]
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    known = {node.id for node in nodes if isinstance(node, ast.Name) and type(node.ctx) is ast.Store}
    known |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    known |= {
        node.name
        for node in nodes
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    }
    known |= {alias.asname or alias.name for one in imports for alias in one.names}
    declared = [f"{one}: Any" for one in sorted(used - known - set(dir(builtins)) - {"Any"})]
    parts = [*map(ast.unparse, imports), "from typing import Any", *declared]
    for one in hooks:
        first = min([one.lineno, *(each.lineno for each in getattr(one, "decorator_list", []))])
        parts += lines[first - 1 : one.end_lineno]
    return "\n".join(parts) + "\n"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_hooks_of_the_pages_pass_mypy_strict(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="mypy is not installed")
    found: list[str] = []
    for page in PAGES:
        for line, text in modules(page):
            if checked := hooks_alone(text):
                found.append(f"{name(page).replace('/', '_').removesuffix('.md')}_{line}.py")
                (tmp_path / found[-1]).write_text(checked)
    assert len(found) >= 10, "each page with a hook"
    command = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", *found]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("Success"), done.stdout + done.stderr


def test_a_hook_is_checked_with_what_it_uses_of_its_module() -> None:
    text = (
        "import asyncmon as am\nloss = 1\n\n@am.every(steps=2)\nasync def report(session):\n"
        "    print(await session.peek(loss))  # kept\n"
    )
    assert hooks_alone(text) == (
        "import asyncmon as am\nfrom typing import Any\nloss: Any\n@am.every(steps=2)\n"
        "async def report(session):\n    print(await session.peek(loss))  # kept\n"
    )
    assert hooks_alone("import asyncmon as am\nhooks = [am.StopAtStepHook(1)]\n") == ""
