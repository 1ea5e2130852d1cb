"""``asyncmon prune``: delete older checkpoints."""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import Any

from asyncmon.checkpoint import KeepBest, prune
from asyncmon.cli.output import add_json_option, write_json, write_table

DESCRIPTION = """\
Delete the older checkpoints of a directory. The newest complete ones stay, and with --keep-best the
best ones; damaged ones are neither counted nor deleted. It fails while training saves there."""

EPILOG = """\
example: asyncmon prune runs/digits --keep 3 --keep-best accuracy:max:2 --dry-run
exit status: 0 done; 1 there is no complete checkpoint, or the directory is in use."""


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("directory", help="the directory of the checkpoints, a path or a URL")
    add(
        "--keep",
        type=_keep,
        default=5,
        metavar="N",
        help="keep the N newest (default: %(default)s)",
    )
    add(
        "--keep-best", type=_keep_best, metavar="METRIC[:min|max[:N]]",
        help="also keep the best N by a metric that they were saved with (default: the lowest one)",
    )  # fmt: skip
    add("--dry-run", action="store_true", help="only print what would be deleted")
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Delete older checkpoints, and list all of them."""
    kept, deleted, damaged = asyncio.run(
        prune(options.directory, options.keep, keep_best=options.keep_best, dry_run=options.dry_run)
    )
    if options.json:
        problems = {one.path: one.problem for one in damaged}
        write_json({"kept": kept, "deleted": deleted, "damaged": problems, "dry_run": options.dry_run})
        return 0
    verdict = "would be deleted" if options.dry_run else "deleted"
    rows = [[path, verdict] for path in deleted] + [[path, "kept"] for path in kept]
    write_table([], rows + [[one.path, f"left: {one.problem}"] for one in damaged])
    sys.stdout.write(f"{len(deleted)} {verdict}, {len(kept)} kept.\n")
    return 0


def _keep(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"it is a number of checkpoints, at least 1, got {text}.")
    return int(text)


def _keep_best(text: str) -> KeepBest:
    metric, _, rest = text.partition(":")
    mode: Any
    mode, _, count = rest.partition(":")
    try:
        return KeepBest(metric, int(count or 1), mode or "min")
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None
