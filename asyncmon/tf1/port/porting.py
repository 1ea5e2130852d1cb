"""Port a program: the new text of each file, and notes on lines that need a manual change."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from asyncmon.tf1.port import imports
from asyncmon.tf1.port.edit import Editor
from asyncmon.tf1.port.entry import Entry
from asyncmon.tf1.port.infer import Types
from asyncmon.tf1.port.notes import Notes
from asyncmon.tf1.port.plan import Plan
from asyncmon.tf1.port.source import Note, Source, parsed
from asyncmon.tf1.port.threads import Threads

_UP = 3  # how many folders above the one of a file may have the modules that it imports


@dataclass(frozen=True)
class Ported:
    """A ported file."""

    source: bytes
    notes: tuple[Note, ...]
    """Notes on code that is left unchanged, by line of the old file."""


class Program:
    """The files of a program, and what their imports lead to: their plans agree.

    Args:
        files: the texts by path.
        progress: receives a text on the progress.
    """

    def __init__(
        self, files: dict[Path, bytes], progress: Callable[[str], object] = lambda _: None
    ) -> None:
        self.sources: dict[Path, Source | None] = {}
        self.errors: dict[Path, SyntaxError] = {}
        self._found: dict[tuple[Path, str], Source | None] = {}
        self.types = Types(self._find)
        for number, (path, data) in enumerate(files.items(), 1):
            progress(f"{number} of {len(files)} files read")
            self._read(path, data)
        for source in self.types.sources:  # grows by imported modules
            for node in source.nodes:
                if isinstance(node, ast.Import | ast.ImportFrom):
                    for module in imports.modules_of(node):
                        self._find(source, module)
        progress(f"following the names of {len(self.types.sources)} files")
        self.types.learn()
        self.plan = Plan(self.types)
        self.threads = {source: Threads(source, self.plan) for source in self.types.sources}
        before = -1
        while before != (before := self.plan._size()):
            self.plan.settle()
            for source in self.types.sources:
                self.threads[source] = Threads(source, self.plan)

    def _read(self, path: Path, data: bytes | None = None) -> Source | None:
        path = path.resolve()
        if path not in self.sources:
            try:
                found = Source(path.read_bytes() if data is None else data, path)
                self.sources[path] = found
                self.types.sources.append(found)
            except SyntaxError as error:
                self.sources[path] = None
                self.errors[path] = error
            except (OSError, UnicodeError):
                self.sources[path] = None
        return self.sources[path]

    def _find(self, source: Source, module: str) -> Source | None:
        """Return the file of a module that another file imports."""
        name = module.lstrip(".")
        if source.path is None or not name:
            return None
        key = source.path.parent, module
        if key not in self._found:
            self._found[key] = self._search(source.path.parent, name, len(module) - len(name))
        return self._found[key]

    def _search(self, folder: Path, name: str, ups: int) -> Source | None:
        folders = [folder, *list(folder.parents)[:_UP]]
        if ups:
            folders = folders[ups - 1 : ups]
        for one in folders:
            place = one.joinpath(*name.split("."))
            for path in (place.with_suffix(".py"), place / "__init__.py"):
                if path in self.sources or path.is_file():
                    return self._read(path)
        return None

    def port(self, path: Path) -> Ported:
        """Return the port of a file. SyntaxError if it is not Python 3, or mixes tabs with spaces."""
        path = path.resolve()
        if path in self.errors:
            raise self.errors[path]
        source = self.sources[path]
        assert source is not None, "it was read"
        plan = self.plan
        entry = Entry(source, plan)
        Notes(source, plan)
        text = Editor(source, plan, self.threads[source], entry).text()
        try:
            parsed(text)
        except SyntaxError as error:  # for example an await where none may be
            where = f"line {error.lineno} of the port is wrong: {error.msg}"
            plan.notes[source].add(Note(1, where))
        return Ported(text.encode(source.encoding), tuple(sorted(plan.notes[source])))


def port(source: bytes | str, folder: Path | None = None) -> Ported:
    """Port the text of a program; porting the result again changes nothing.

    Args:
        source: the text.
        folder: the folder of the program, in which imported files are read to find async functions.

    Raises:
        SyntaxError: it is not Python 3, or mixes tabs with spaces; it has the line.
    """
    data = source.encode() if isinstance(source, str) else source
    path = (folder or Path("/")) / "<program>.py"
    return Program({path: data}).port(path)
