"""All fault campaigns with one command: ``python -m tests.campaigns --minutes 30 --seed 1``.

A campaign is a test that is marked as one and runs once for each seed; its short form is part of the
suite. Here campaigns take turns, with new seeds in each turn, until the time is over. A seed that fails
is printed with the command that repeats it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[2]
CAMPAIGNS = {
    "simulation": "a simulated cluster with random faults",
    "kills": "processes killed in saves and steps, and continued",
    "lost-writes": "crashes of the machine at each write, of saves, retention and prunes",
    "damage": "damaged files and manifests",
    "cancellation": "calls cancelled at random",
    "stops": "stops by signals, tasks and threads",
    "ends": "all ends, with sources, steps and hooks that fail, hang or ignore their cancellation",
    "errors": "errors of hooks, steps, snapshots and listeners, recovered from",
    "recovery": "elements of the data after recoveries and restarts",
    "data": "elements that bodies of several forms read, with failures and kills",
    "pipelines": "elements that pipelines of random options deliver, with failures and kills",
    "pipeline-kills": "trainings with pipelines of tasks, processes and HTTP workers, killed",
    "cluster": "servers and workers killed, suspended and cut off, bytes changed",
    "namespaces": "servers and workers on five hosts whose network is disturbed",
    "monitor": "viewers that come, stall and go",
    "disk": "full and slow disks",
    "jobs": "two services on one queue, killed at random moments",
    "ranks": "ranks of torchrun that read their shares of the data, killed",
    "system-calls": "one system call of saves and restores that fails",
}


@dataclass
class Campaign:
    """The findings so far.

    Attributes:
        next_seed: the first one of the next turn.
        count: the number of seeds of the next turn.
        attempts: the number of tests that ran; most campaigns have several for each seed.
        failures: the tests that failed.
    """

    name: str
    next_seed: int
    count: int = 4
    attempts: int = 0
    failures: list[str] = field(default_factory=list)
    secs: float = 0.0

    def take_a_turn(self, tests: list[str], secs: float) -> None:
        """Run the next seeds, as many as took a quarter of ``secs`` so far."""
        with tempfile.NamedTemporaryFile(suffix=".xml") as file:
            seeds = f"{self.next_seed}:{self.count}"
            command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--seeds", seeds,
                       "--junitxml", file.name, "-o", "junit_family=xunit1", *tests]  # fmt: skip
            start = time.monotonic()
            done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
            took = time.monotonic() - start
            try:
                cases = list(ElementTree.parse(file.name).iter("testcase"))
            except ElementTree.ParseError:
                cases = []
        if done.returncode not in (0, 1) or not cases:
            raise SystemExit(f"pytest ended with {done.returncode}:\n{done.stdout[-3000:]}")
        failed = [
            case for case in cases if case.find("failure") is not None or case.find("error") is not None
        ]
        if failed:
            print(done.stdout[-6000:])
        for case in failed:
            name = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
            self.failures.append(name)
            print(f"repeat it: python -m pytest --seeds {seeds} '{name}'", flush=True)
        self.attempts += len(cases) - sum(case.find("skipped") is not None for case in cases)
        self.secs += took
        self.next_seed += self.count
        self.count = max(1, min(8 * self.count, int(self.count * secs / 4 / took)))


def tests_of(name: str) -> list[str]:
    """Return the tests of a campaign: the functions that are marked with its name."""
    found = []
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        lines = file.read_text().splitlines()
        for number, line in enumerate(lines):
            if line.startswith(f'@pytest.mark.campaign("{name}"'):
                following = next(
                    one for one in lines[number:] if one.startswith(("def ", "async def "))
                )
                function = following.removeprefix("async ").removeprefix("def ").partition("(")[0]
                found.append(f"{file.relative_to(ROOT)}::{function}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30, help="for all campaigns together")
    parser.add_argument("--seed", type=int, default=1000, help="the first seed")
    parser.add_argument("--only", action="append", choices=[*CAMPAIGNS, "soak"], help="may be repeated")
    options = parser.parse_args()
    names = options.only or [*CAMPAIGNS, "soak"]
    campaigns = [Campaign(name, options.seed) for name in names if name != "soak"]
    share = 60 * options.minutes / len(names)
    for campaign in campaigns:
        tests = tests_of(campaign.name)
        while campaign.secs < share:
            campaign.take_a_turn(tests, share)
        said = f"{campaign.attempts:,} attempts with {campaign.next_seed - options.seed:,} seeds"
        print(f"{campaign.name:13}{said}, {len(campaign.failures)} failed, {campaign.secs:.0f} s: "
              f"{CAMPAIGNS[campaign.name]}", flush=True)  # fmt: skip
    failures = [one for campaign in campaigns for one in campaign.failures]
    if "soak" in names:
        soak = [sys.executable, str(Path(__file__).with_name("soak.py")), str(share)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        if subprocess.run(soak, cwd=ROOT, env=environment, check=False).returncode:
            failures.append("soak")
    print("all held" if not failures else f"{len(failures)} failed:\n" + "\n".join(failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
