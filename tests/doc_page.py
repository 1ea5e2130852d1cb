"""Run the code blocks of a page of the documentation, and compare their output.

A page is Markdown. Its blocks run from top to bottom in one directory::

    python          in one namespace, `await` is allowed at the top level
    sh              by bash; a failing command is an error
    console         lines with "$ " are commands, run by bash; the others are their output
    text            the output of the block before it; "..." stands for anything, white space is as
                    good as other, and a number before "s" or "/sec" is not compared
    json, toml      parsed
    yaml, ini, (none)   not run: files of other programs, and drawings

A block that prints without a `text` block after it is an error. A comment before a block changes this::

    <!-- new program -->            a new namespace and a new default graph from here on
    <!-- needs: torch, jax -->      the block and its output are left out where a package is missing
    <!-- file: train.py -->         the block is written to a file instead; if the file is already there
                                    it must be the same
    <!-- run by: tests/x.py -->     that test runs the block
    <!-- not run: it installs -->   the block is not run, with the reason
    <!-- check                      Python that is run and not shown, over the lines up to the end
    ... -->

Run as a program: ``python tests/doc_page.py PAGE [PACKAGE ...]``. With packages, only the programs that
need exactly these are run.
"""

from __future__ import annotations

import ast
import asyncio
import contextvars
import doctest
import inspect
import io
import json
import os
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from asyncmon.graph import reset_default_graph

LANGUAGES = {"python", "sh", "console", "text", "json", "toml", "yaml", "ini", ""}
MARKS = {"new program", "needs", "file", "run by", "not run"}
SECS = 60
"""How long one command may take."""


@dataclass
class Block:
    """A code block, or a hidden check."""

    language: str
    text: str
    line: int
    """The number of its first line."""
    marks: dict[str, str] = field(default_factory=dict)

    @property
    def needs(self) -> tuple[str, ...]:
        return tuple(re.findall(r"\w+", self.marks.get("needs", "")))


def programs(page: Path) -> list[list[Block]]:
    """Return the blocks of a page, by program."""
    found: list[list[Block]] = [[]]
    marks: dict[str, str] = {}
    opened: Block | None = None
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if opened is not None:
            if line == ("-->" if opened.language == "check" else "```"):
                found[-1].append(opened)
                opened = None
            else:
                opened.text += line + "\n"
        elif line.startswith("```") or line == "<!-- check":
            if "new program" in marks:
                found.append([])
            language = "check" if line.startswith("<") else line[3:]
            opened, marks = Block(language, "", number + 1, marks), {}
            assert found[-1] or language != "text", f"{page}:{number}: the output of which block?"
        elif mark := re.fullmatch(r"<!-- ([a-z ]+?)(?:: (.*))? -->", line):
            if mark[1] in MARKS:
                marks[mark[1]] = mark[2] or ""
        elif line.strip():
            assert "```" not in line, f"{page}:{number}: a block begins in the first column"
            assert not set(marks) - {"new program"}, f"{page}:{number}: {marks} stands before no block"
    assert opened is None, f"{page}:{opened and opened.line}: the block has no end"
    return found


def comparable(text: str) -> str:
    """Replace what depends on the machine: durations and rates."""
    return re.sub(r"\d+(\.\d+)?(e[+-]\d+)?(?= s\b| sec\b)|(?<=/sec: )\S+", "#", text)


def difference(shown: str, printed: str) -> str:
    """Return how an output differs from that of the page, or nothing."""
    example = doctest.Example("", comparable(shown))
    checker, flags = doctest.OutputChecker(), doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    if checker.check_output(example.want, comparable(printed), flags):
        return ""
    return checker.output_difference(example, comparable(printed), flags | doctest.REPORT_NDIFF)


def shell(command: str) -> str:
    """Return what a command prints, on both streams; `python` is this one."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=SECS,
    )  # fmt: skip
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}"
    return done.stdout


def run_console(text: str) -> None:
    """Run the commands of a `console` block, and compare what each prints."""
    for part in re.findall(r"^\$ (.*(?:(?<=\\)\n.*)*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
        command, shown = part
        assert not (found := difference(shown, shell(command))), f"$ {command}\n{found}"


def write_file(path: Path, text: str) -> None:
    if path.exists():
        assert path.read_text() == text, f"{path} is not what the page shows:\n{path.read_text()}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


class Program:
    """One namespace, and the output of its last block."""

    def __init__(self, page: Path, runner: asyncio.Runner, output: io.StringIO) -> None:
        self.page = page
        self.names: dict[str, object] = {"__name__": "__main__", "__file__": str(page)}
        self.runner = runner
        self.context = contextvars.copy_context()
        self.context.run(reset_default_graph)  # it is that of the thread, too
        self.output = output

    def run(self, block: Block) -> None:
        if "file" in block.marks:
            write_file(Path(block.marks["file"]), block.text)
        elif block.language in ("python", "check"):
            self.execute(block)
        elif block.language == "sh":
            self.output.write(shell(block.text))
        elif block.language == "console":
            run_console(block.text)
        elif block.language == "json":
            json.loads(block.text)
        elif block.language == "toml":
            tomllib.loads(block.text)

    def execute(self, block: Block) -> None:
        code = compile(
            "\n" * (block.line - 1) + block.text, str(self.page), "exec",
            flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True,
        )  # fmt: skip
        if code.co_flags & inspect.CO_COROUTINE:
            self.runner.run(eval(code, self.names), context=self.context)
        else:
            self.context.run(exec, code, self.names)


def run_program(page: Path, blocks: list[Block], packages: set[str], output: io.StringIO) -> None:
    """Run the blocks of a program, of blocks that need packages only the ones that need these."""
    shown = [block for block in blocks if set(block.needs) <= packages]
    with asyncio.Runner() as runner:
        program = Program(page, runner, output)
        for number, block in enumerate(shown):
            if block.language == "text" or block.marks.keys() & {"run by", "not run"}:
                continue
            try:
                output.seek(output.truncate(0))
                program.run(block)
                after = shown[number + 1] if number + 1 < len(shown) else None
                text = after.text if after is not None and after.language == "text" else ""
                assert not (found := difference(text, output.getvalue())), found
            except BaseException:
                sys.__stderr__.write(f"{page}:{block.line}: this block failed.\n{output.getvalue()}\n")
                raise


def main(page: Path, packages: set[str]) -> None:
    sys.stdout = sys.stderr = output = io.StringIO()
    try:
        for blocks in programs(page):
            if not packages or any(set(block.needs) == packages for block in blocks):
                run_program(page, blocks, packages, output)
    finally:
        sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__


if __name__ == "__main__":
    sys.path[0] = ""  # blocks import the files that others wrote
    main(Path(sys.argv[1]), set(sys.argv[2:]))
