"""What the pages show is what happens: tests/doc_page.py says which blocks run, and how."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from tests import doc_page, forked
from tests.campaigns import __main__ as campaigns

ROOT = Path(__file__).parents[1]
DOCS = sorted(page for page in (ROOT / "docs").glob("*.md") if page.name != "porting.md")
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *DOCS,
]  # tests/tf1/test_page.py has the other one


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[doc_page.Block]:
    return [block for program in doc_page.programs(page) for block in program]


def cases(pages: list[Path]) -> list[tuple[str, tuple[str, ...]]]:
    """Return each page, and again for each set of packages that some of its blocks need."""
    return [
        (name(page), needs)
        for page in pages
        for needs in sorted({(), *(block.needs for block in blocks(page))})
    ]


@pytest.mark.parametrize(
    ("page", "needs"), [pytest.param(*case, id="+".join([case[0], *case[1]])) for case in cases(PAGES)]
)
def test_the_blocks_run_and_print_what_the_page_shows(
    page: str, needs: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in needs:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    monkeypatch.setenv("COLUMNS", "104")
    script = Path(doc_page.__file__)
    process = forked.Process(script, str(ROOT / page), *needs, cwd=tmp_path, options=("-W", "error"))
    found = "".join(process.communicate())
    assert process.returncode == 0, found


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_is_of_a_kind_that_is_run_or_has_a_reason(page: Path) -> None:
    for block in blocks(page):
        place = f"{name(page)}:{block.line}"
        assert block.language in {*doc_page.LANGUAGES, "check"}, place
        assert block.marks.get("not run", "a reason"), place
        if test := block.marks.get("run by"):
            text = (ROOT / test).read_text()
            assert page.name in text or block.text in text, place


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=name)
def test_every_page_has_fewer_than_300_lines(page: Path) -> None:
    assert len(page.read_text().splitlines()) < 300


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_inside_of_the_project_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for link, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)]*))?\)", text):
        target = page.parent / link if link else page
        assert target.exists(), f"{name(page)}: {link}"
        if anchor:
            titles = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
            anchors = [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]
            assert anchor in anchors, f"{name(page)}: {link}#{anchor}"


def test_the_program_of_the_readme_continues_when_it_is_run_again(tmp_path: Path) -> None:
    program = blocks(ROOT / "README.md")[0].text
    for step in (300, 600):
        (tmp_path / "line.py").write_text(program.replace("last_step=300", f"last_step={step}"))
        done = forked.run(
            tmp_path / "line.py", cwd=tmp_path, options=("-W", "error", "-u"), merged=True, check=True
        )
    assert "Restoring parameters from runs/line/model.ckpt-300" in done.stdout
    assert "step 600:" in done.stdout


def run_page(directory: Path, text: str) -> str:
    """Return the complaints about a page with this text; empty if all is right."""
    (directory / "page.md").write_text(text)
    process = forked.Process(Path(doc_page.__file__), "page.md", cwd=directory)
    found = "".join(process.communicate())
    assert bool(process.returncode) == bool(found)
    return found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("```python\nassert False\n```", "page.md:2: this block failed"),
        ("```python\nprint(1)\n```\n\nIt prints\n\n```text\n2\n```", "Differences"),
        ("```python\nprint(1)\n```", "Differences"),
        ("```python\nx = 1\n```\n<!-- new program -->\n```python\nx\n```", "NameError"),
        ("```sh\nfalse | true\n```", "exit status 1"),
        ("```console\n$ echo 1 \\\n  2\n1 2\n$ echo 3\n4\n```", "$ echo 3"),
        ("<!-- file: a -->\n```\n1\n```\n<!-- file: a -->\n```\n2\n```", "is not what the page shows"),
        ("<!-- not run: x -->\n\nNo block.", "stands before no block"),
        ("```python\n", "the block has no end"),
        ("- in a list\n  ```python\n  ```", "a block begins in the first column"),
        ("<!-- check\nassert False\n-->", "page.md:2: this block failed"),
        ("```text\n1\n```", "the output of which block?"),
        ("```json\n{\n```", "JSONDecodeError"),
    ],
)
def test_a_wrong_page_is_found(text: str, found: str, tmp_path: Path) -> None:
    assert found in run_page(tmp_path, text)


def test_a_right_page_passes(tmp_path: Path) -> None:
    right = (
        "```python\nimport asyncio\nawait asyncio.sleep(0)\nprint(f'in {0.5} s')\n```\n\n"
        "```text\nin 0.1 s\n```\n<!-- needs: no_such -->\n```python\nimport no_such\n```\n"
        "<!-- not run: never -->\n```sh\nfalse\n```\n<!-- file: a.py -->\n```python\nprint(2)\n```\n"
        "```console\n$ python a.py\n2\n$ seq 3\n1\n...\n```\n<!-- check\nprint(asyncio)\n-->\n"
        "```text\n<module 'asyncio' ...>\n```\n<!-- new program -->\n"
        "```sh\necho 4\n```\n```text\n4\n```"
    )
    assert run_page(tmp_path, right) == ""


def claims(page: str) -> list[str]:
    """Return the paragraphs, list items and table rows that claim something, without code."""
    text = (ROOT / "docs" / page).read_text()
    text = text[text.index({"design.md": "Some consequences", "reliability.md": "## Tried"}[page]) :]
    text = re.sub(r"^(```.*?^```|#+ .*?|\|[-|]+)$", "", text, flags=re.DOTALL | re.MULTILINE)
    parts = re.split(r"\n\s*\n|\n(?=- |\| )", text)
    headers = ("| campaign |", "| fault |")
    return [one for one in parts if one.strip() and not one.strip().startswith(headers)]


@pytest.mark.parametrize("page", ["design.md", "reliability.md"])
def test_each_claim_names_a_test(page: str) -> None:
    unproven = [one for one in claims(page) if "](../tests/" not in one and not one.endswith(":")]
    assert unproven == []


@pytest.mark.parametrize("page", ["design.md", "reliability.md"])
def test_the_tests_that_claims_name_exist(page: str) -> None:
    text = (ROOT / "docs" / page).read_text()
    named = re.findall(r"\]\(\.\./(tests/[^)\s]+)(?:\s+\"([^\"]+)\")?\)", text)
    assert len(named) == text.count("](../tests/")
    for file, function in named:
        assert f"def {function}" in (ROOT / file).read_text(), (file, function)


@pytest.mark.parametrize("campaign", campaigns.CAMPAIGNS)
def test_each_campaign_has_a_row_with_all_its_tests(campaign: str) -> None:
    text = (ROOT / "docs" / "reliability.md").read_text()
    rows = [row for row in text.splitlines() if f"`{campaign}`" in row.split(" | ")[0]]
    assert len(rows) == 1
    files = {test.partition("::")[0] for test in campaigns.tests_of(campaign)}
    assert [file for file in files if f"](../{file})" not in rows[0]] == []


@pytest.mark.parametrize("file", [".ci/run", "CONTRIBUTING.md"])
def test_the_paths_of_tests_that_a_file_names_exist(file: str) -> None:
    paths = re.findall(r"tests/[\w./*-]+", (ROOT / file).read_text(encoding="utf-8"))
    assert paths
    assert [path for path in paths if not [*ROOT.glob(path.strip("./"))]] == []
