"""The house stays as it is drawn: imports go down, no cycle, small files."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from asyncmon.system.wings import wings

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "asyncmon"

LAYER = {
    room: layer
    for layer, rooms in enumerate(
        [
            ["system"],
            ["errors", "session_config"],
            ["protobuf"],
            ["graph", "checkpoint", "summary", "data"],
            ["runtime"],
            ["hooks", "programs", "distributed", "executors"],
            ["training"],
            ["tf1", "monitor", "testing"],
            ["jobs"],
            ["__init__"],
            ["port", "cli"],
            ["__main__"],
        ]
    )
    for room in rooms
}
GRAPH_LAYER = {
    package: layer
    for layer, packages in enumerate(
        [
            ["numerics"],
            ["core"],
            ["execution"],
            ["ops", "queues"],
            ["nn", "control", "variables"],
            ["train", "session"],
            ["layers"],
            ["__init__"],
        ]
    )
    for package in packages
}
"""The packages of the graph engine, from the lowest layer."""

BESIDE = {("summary", "graph")}
"""The only step that is not down: summary ops are graph ops."""

MODULES = sorted(PACKAGE.rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py")) + sorted((ROOT / "examples").glob("*.py"))


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room(module: str) -> str:
    parts = module.split(".")
    if parts[1:3] == ["tf1", "port"]:
        return "port"  # a client of the public names
    return parts[1] if len(parts) > 1 else "__init__"


NAMES = {module_name(path) for path in MODULES}


def imports(path: Path) -> frozenset[str]:
    """Return the modules of the package that a file imports: for typing, in functions, by string."""
    return facts(path)[0]


@cache
def facts(path: Path) -> tuple[frozenset[str], frozenset[str]]:
    """Return what a file imports, and the dotted names that it calls."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    called = {dotted(node.func) for node in nodes if isinstance(node, ast.Call)}
    return frozenset(_imports(path, nodes)), frozenset(called)


def dotted(node: ast.AST) -> str:
    """Return ``a.b.c``, or ``.c`` for an attribute of something without a name."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _imports(path: Path, nodes: list[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "asyncmon")
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = module_name(path).split(".")
                up = node.level if path.name != "__init__.py" else node.level - 1
                base = ".".join([*package[: len(package) - up], *filter(None, [base])])
            if base.split(".")[0] != "asyncmon":
                continue
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                yield inner if inner in NAMES else base
        elif isinstance(node, ast.Call) and dotted(node.func).endswith("import_module"):
            yield from (
                argument.value
                for argument in node.args
                if isinstance(argument, ast.Constant) and argument.value in NAMES
            )


def test_every_room_has_a_layer() -> None:
    rooms = {room(name) for name in NAMES}
    assert rooms <= LAYER.keys(), f"draw these in LAYER: {sorted(rooms - LAYER.keys())}"


def test_imports_go_down() -> None:
    for path in MODULES:
        here = room(module_name(path))
        for target in imports(path):
            there = room(target)
            down = LAYER[there] < LAYER[here] or there == here or (here, there) in BESIDE
            assert down, f"{module_name(path)} (L{LAYER[here]}) imports {target} (L{LAYER[there]})"


def graph_package(module: str) -> str:
    parts = module.split(".")
    return parts[2] if len(parts) > 2 else "__init__"


def test_packages_of_the_graph_import_down() -> None:
    for path in (one for one in MODULES if room(module_name(one)) == "graph"):
        here = graph_package(module_name(path))
        for target in imports(path):
            if not target.startswith("asyncmon.graph.") or (there := graph_package(target)) == here:
                continue
            assert GRAPH_LAYER[there] < GRAPH_LAYER[here], (
                f"{module_name(path)} imports {target}, which is not below"
            )


WINGS = [wing.name for wing in wings()]
CORE = [path for path in MODULES if path.relative_to(PACKAGE).parts[0] not in WINGS]
CORE += [path for path in TESTS if path.relative_to(ROOT).parts[1] not in [*WINGS, "benchmarks"]]


@pytest.mark.parametrize("wing", WINGS)
def test_nothing_else_names_a_wing(wing: str) -> None:
    """A wing registers itself: nothing imports it, in a function or by a string either."""
    name = re.compile(rf"\basyncmon[./]{wing}\b|\bam\.{wing}\b|from asyncmon import .*\b{wing}\b")
    assert [path for path in CORE if name.search(path.read_text())] == []


def test_no_import_cycle() -> None:
    graph = {module_name(path): set(imports(path)) for path in MODULES}
    graph = {name: targets - {name} for name, targets in graph.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"import cycle: {' -> '.join(error.args[1])}")


@pytest.mark.parametrize(("folder", "most"), [("asyncmon", 500), ("tests", 600), ("examples", 100)])
def test_a_file_stays_small(folder: str, most: int) -> None:
    paths = [path for path in MODULES + TESTS if path.relative_to(ROOT).parts[0] == folder]
    assert [path for path in paths if len(path.read_text().splitlines()) > most] == []


def test_clocks_are_read_in_one_place() -> None:
    """Only the clock and the test bench read one; a retry may pause a thread; perf_counter is free."""
    for path in MODULES:
        if path.name in ("clock.py", "portable.py") or room(module_name(path)) == "testing":
            continue
        wrong = {"time.time", "time.monotonic", "time.sleep", "datetime.now"} & facts(path)[1]
        assert not wrong, f"{module_name(path)} calls {sorted(wrong)}; use asyncmon.system.clock"


def test_the_runtime_imports_the_graph_in_one_file() -> None:
    """The seam: other folders know programs and sessions by their protocols only."""
    for path in MODULES:
        name = module_name(path)
        if room(name) == "runtime" and name != "asyncmon.runtime.graph_program":
            wrong = [m for m in imports(path) if m.startswith("asyncmon.graph")]
            assert not wrong, f"{name} imports {wrong}; use graph_program or the protocols"


def depth(package: str) -> int:
    """Return the length of the longest chain of imports inside a package."""
    paths = {module_name(path): path for path in MODULES}
    inside = {name for name in paths if f"{name}.".startswith(f"asyncmon.{package}.")}
    below = {name: inside & imports(paths[name]) - {name} for name in inside}
    floors: dict[str, int] = {}
    for name in TopologicalSorter(below).static_order():
        floors[name] = 1 + max((floors[one] for one in below[name]), default=0)
    return max(floors.values())


@pytest.mark.parametrize(
    ("package", "most"),
    [
        *[(room, 12) for room in ("checkpoint", "data", "hooks", "programs", "runtime", "summary")],
        ("jobs", 9),
        ("graph", 14),
        *[(f"graph.{name}", 7 if name == "core" else 5) for name in GRAPH_LAYER if name != "__init__"],
    ],
)
def test_a_package_is_not_deep(package: str, most: int) -> None:
    assert depth(package) <= most


def test_the_stop_imports_nothing_that_it_ends() -> None:
    """What stops a session knows its calls and deadlines, and no hook, coordinator or session."""
    for path in MODULES:
        name = module_name(path)
        if name.startswith("asyncmon.runtime.stop."):
            above = {one for one in imports(path) if one.startswith("asyncmon.runtime")}
            assert all(one.startswith("asyncmon.runtime.stop") for one in above), (name, above)
