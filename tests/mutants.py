"""Change the package in one place at a time: ``python -m tests.mutants --sample 400 --seed 1``.

The mutations are Cosmic Ray's (``pip install cosmic-ray``), at most one for each place of the source.
The sample is of five rooms, or of each ``--path``, in proportion to the lines of their rooms.
The tests of a room run once with coverage, which takes minutes; ``--tests "fast and not slow"`` leaves
out tests that start processes. Each mutant then runs the tests of its statement, the fastest first; a
failure or a time-out kills it. Where no test reaches the statement in this process (a constant, the
code of a child), the tests of the function, class or file around it run, or else all of the room. The
results are appended to ``results.jsonl`` in ``--place``, and a second call continues there.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import coverage

try:
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator, operator_names
except ImportError as error:
    raise SystemExit("python -m tests.mutants needs Cosmic Ray: pip install cosmic-ray") from error

ROOT = Path(__file__).parents[1]
PATHS = [f"asyncmon/{room}" for room in ["runtime", "checkpoint", "hooks", "data", "distributed"]]
BINARY = {
    "Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "FloorDiv_Mul", "Mod_Mul", "Pow_Mul", "BitOr_BitAnd",
    "BitAnd_BitOr", "BitXor_BitAnd", "LShift_RShift", "RShift_LShift",
}  # fmt: skip
UNLIKE = {"Eq_Is", "Is_Eq", "NotEq_IsNot", "IsNot_NotEq"}  # which are the same for most objects
SECS = 60.0
"""How long the tests of a mutant may take, measured with coverage."""
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]


@dataclass(frozen=True)
class Mutant:
    path: str
    line: int
    column: int
    operator: str
    occurrence: int

    def code(self) -> str:
        text = (ROOT / self.path).read_text()
        return str(mutate_code(text, get_operator(self.operator)(), self.occurrence))

    def is_change(self) -> bool:
        """Return whether this is Python and differs in more than annotations."""
        with contextlib.suppress(SyntaxError):
            return executed(self.code()) != executed((ROOT / self.path).read_text())
        return False


def executed(text: str) -> str:
    """Return code without the parts that are for a type checker alone."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.arguments):  # a `*` alone in a signature is no multiplication
            node.args = [*node.posonlyargs, *node.args, *node.kwonlyargs]
            node.defaults += [default or ast.Constant(None) for default in node.kw_defaults]
            node.posonlyargs, node.kwonlyargs, node.kw_defaults = [], [], []
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        elif isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            node.test, node.body = ast.Constant(None), []
    return ast.dump(tree)


def operators() -> list[tuple[str, Any]]:
    found = []
    for name in operator_names():
        kind, _, pair = name.rpartition("Operator_")
        is_chosen = pair in BINARY if kind.endswith("Binary") else pair not in UNLIKE
        if is_chosen and not get_operator(name).arguments():
            found.append((name, get_operator(name)()))
    return found


def files_by_room(paths: list[str]) -> dict[str, list[Path]]:
    """Return the files of paths (files or folders of the package) by the room that tests them."""
    rooms: dict[str, list[Path]] = {}
    for path in map(ROOT.__truediv__, paths):
        if not (found := [path] if path.is_file() else sorted(path.rglob("*.py"))):
            raise SystemExit(f"--path {path} has no file")
        files = rooms.setdefault(path.relative_to(ROOT / "asyncmon").parts[0], [])
        files += [file for file in found if file not in files]
    return rooms


def sample(room: str, files: list[Path], count: int, seed: int) -> list[Mutant]:
    """Return one mutant at each of a number of places in files of a room."""
    places: dict[tuple[str, int, int], list[Mutant]] = {}
    for file in files:
        path, nodes = str(file.relative_to(ROOT)), list(ast_nodes(get_ast(file.read_text())))
        for name, operator in operators():
            positions = [one[0] for node in nodes for one in operator.mutation_positions(node)]
            for occurrence, place in enumerate(positions):
                places.setdefault((path, *place), []).append(Mutant(path, *place, name, occurrence))
    chance = random.Random(f"{seed} {room}")
    shuffled = list(places.values())
    chance.shuffle(shuffled)
    changes = filter(Mutant.is_change, map(chance.choice, shuffled))
    return [mutant for mutant, _ in zip(changes, range(count), strict=False)]


def measure(
    room: str, tests: str, copy: Path, place: Path
) -> tuple[coverage.CoverageData, Counter[str]]:
    """Run the tests of a room with coverage, unless that was done; return it and their milliseconds."""
    data, log = place / f"{room}.coverage", place / f"{room}.log"
    if not log.exists():
        options = ["-n", "2", "-rA", "-vv", "--durations=0", "--durations-min=0", "--cov=asyncmon",
                   "--cov-context=test", "--cov-report=", "-m", tests, f"tests/{room}"]  # fmt: skip
        environment = {**os.environ, "PYTHONPATH": str(copy), "COVERAGE_FILE": str(data)}
        done = subprocess.run(
            [*PYTEST, *options], cwd=copy, env=environment, stdout=subprocess.PIPE, check=False
        )
        log.write_bytes(done.stdout)
    text = log.read_text()
    took = Counter(dict.fromkeys(re.findall(r"^PASSED (.+)$", text, re.MULTILINE), 0))
    for secs, test in re.findall(r"^([\d.]+)s (?:call|setup|teardown) +(.+)$", text, re.MULTILINE):
        if test in took:
            took[test] += int(1000 * float(secs))
    if not took:
        raise SystemExit(f"no test of {room} has passed: {text[-2000:]}")
    read = coverage.CoverageData(str(data))
    read.read()
    return read, took


def tests_of(mutant: Mutant, copy: Path, data: coverage.CoverageData, took: Counter[str]) -> list[str]:
    """Return the tests that reach a mutant's statement, or the smallest part of the file around it."""
    reached = data.contexts_by_lineno(str(copy / mutant.path))
    parts = [range(1, sys.maxsize)]
    for node in ast.walk(ast.parse((ROOT / mutant.path).read_text())):
        if isinstance(node, ast.stmt):
            first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))])
            parts.append(range(first, (node.end_lineno or first) + 1))
            if (body := getattr(node, "body", None)) and "decorator_list" not in node._fields:
                parts.append(range(first, body[0].lineno))
    for lines in sorted(
        (one for one in parts if mutant.line in one), key=lambda lines: lines.stop - lines.start
    ):
        found = {
            test.rpartition("|")[0]
            for line, tests in reached.items()
            if line in lines
            for test in tests
        }
        if found & took.keys():
            break
    else:  # only children run the file
        found = set(took)
    tests = sorted(found & took.keys(), key=lambda test: (took[test], test))
    ends = [sum(took[test] for test in tests[: n + 1]) for n in range(len(tests))]
    return [test for test, end in zip(tests, ends, strict=True) if end <= 1000 * SECS] or tests[:1]


def killer_of(mutant: Mutant, tests: list[str], copy: Path) -> str | None:
    """Return the first test that a mutant fails, or None."""
    (copy / mutant.path).write_text(mutant.code())
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    with tempfile.NamedTemporaryFile("w") as names:
        names.write("\n".join(tests))
        names.flush()
        command = [*PYTEST, "-x", "-rfE", "--tb=line", "--timeout=60", f"@{names.name}"]
        process = subprocess.Popen(
            command, cwd=copy, env=environment, start_new_session=True, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            out, _ = process.communicate(timeout=5 * SECS)
        except subprocess.TimeoutExpired:
            out = "it ran into the time limit"
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    shutil.copy2(ROOT / mutant.path, copy / mutant.path)
    failed = re.findall(r"^(?:FAILED|ERROR) .*$", out, re.MULTILINE)
    return None if process.returncode == 0 else [*failed, out[-300:]][0]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--sample", type=int, default=400, help="mutants of all rooms together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--path", action="append", help="a file or folder; may be repeated")
    parser.add_argument("--tests", default="not slow", help="the marker expression of pytest's -m")
    parser.add_argument("--place", type=Path, default=Path(tempfile.gettempdir(), "mutants"))
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    place = options.place.resolve()
    copies: SimpleQueue[Path] = SimpleQueue()
    for number in range(options.processes):
        copy = place / f"copy{number}"
        for part in ["asyncmon", "tests", "examples", "docs"]:
            shutil.copytree(ROOT / part, copy / part, dirs_exist_ok=True)
        for name in ["pyproject.toml", "README.md"]:
            shutil.copy2(ROOT / name, copy)
        copies.put(copy)
    results = place / "results.jsonl"
    results.touch()
    known = {json.dumps(one["mutant"]): one["killer"] for one in map(json.loads, results.open())}

    def judge(mutant: Mutant, measured: Any) -> str | None:
        key = json.dumps(asdict(mutant))
        if key not in known:
            copy = copies.get()
            known[key] = killer_of(mutant, tests_of(mutant, place / "copy0", *measured), copy)
            copies.put(copy)
            with results.open("a") as file:
                file.write(json.dumps({"mutant": asdict(mutant), "killer": known[key]}) + "\n")
        return known[key]

    rooms = files_by_room(options.path or PATHS)
    lines = {room: sum(len(file.read_text().splitlines()) for file in rooms[room]) for room in rooms}
    for room, files in rooms.items():
        measured = measure(room, options.tests, place / "copy0", place)
        count = round(options.sample * lines[room] / sum(lines.values()))
        mutants = sample(room, files, count, options.seed)
        with ThreadPoolExecutor(options.processes) as pool:
            killers = list(pool.map(judge, mutants, [measured] * len(mutants)))
        alive = [one for one, killer in zip(mutants, killers, strict=True) if killer is None]
        killed = len(mutants) - len(alive)
        print(
            f"{room}: {len(mutants)} mutants, {killed} killed ({killed / len(mutants):.0%}); survived:"
        )
        for mutant in alive:
            line = mutant.code().splitlines()[mutant.line - 1].strip()
            print(f"  {mutant.path}:{mutant.line} {mutant.operator}: {line}", flush=True)


if __name__ == "__main__":
    main()
