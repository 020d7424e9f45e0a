from __future__ import annotations

import csv
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import tasks
from app.errors import UsageError
from app.project.documentation import require_own, site_command, site_environment

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted((ROOT / "docs").rglob("*.md"))
WRITTEN = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES]
TOP = ("app", "kernels", "loadtest", "tests", "docs", "deploy", "ci", "requirements")
GLOBS = set("*<>{}$ ")


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def files_named_in(page: Path) -> Iterator[str]:
    for said in re.findall(r"`([^`\n]+)`", page.read_text(encoding="utf-8")):
        if said.split("/")[0] in TOP and "/" in said and not GLOBS & set(said):
            yield said.rstrip("/")


def calls_in(page: Path) -> Iterator[list[str]]:
    """Command lines of the lab in code blocks and code spans, as words after `invoke` or `./lab`."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))
    for line in (*lines, *spans):
        if said := re.match(r"(?:\$ )?(?:invoke|\./lab) (.*)", line):
            yield shlex.split(said.group(1), comments=True)


@pytest.mark.parametrize("page", WRITTEN, ids=named)
def test_a_page_names_only_files_that_exist(page: Path) -> None:
    # Of `app/x.py: how` the first word is the file.
    assert [said for said in files_named_in(page) if not (ROOT / said.split(":")[0]).exists()] == []


@pytest.mark.parametrize("page", WRITTEN, ids=named)
def test_a_page_calls_only_tasks_and_options_that_exist(page: Path) -> None:
    wrong = []
    for name, *words in calls_in(page):
        if name.startswith("-") or not name.islower():
            continue
        if name not in tasks.ns.task_names:
            wrong.append(name)
            continue
        known = {option for argument in tasks.ns[name].get_arguments() for option in argument.names}
        options = [word.lstrip("-").split("=")[0] for word in words if word.startswith("--")]
        wrong += [f"{name} --{option}" for option in options if option not in known]
    assert wrong == []


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; a warning of the build fails it."""
    out = tmp_path_factory.mktemp("docs") / "site"
    built = subprocess.run(site_command(out), cwd=ROOT, env=site_environment(), capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return out


def test_the_site_builds_without_a_warning(site: Path) -> None:
    assert (site / "index.html").is_file()


def test_a_page_of_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    # The theme fetches a renderer from a content network for pages with diagrams of this class.
    fetched = re.compile(r'<(?:script|link|img|iframe)[^>]*(?:src|href)="?https?://|class="?mermaid')
    pages = list(site.rglob("*.html"))
    assert len(pages) >= len(PAGES)
    assert [str(page) for page in pages if fetched.search(page.read_text(encoding="utf-8"))] == []


def test_the_worked_example_tells_the_demos_as_they_are_recorded() -> None:
    with (ROOT / "docs" / "results" / "demos.csv").open(newline="") as source:
        rows = list(csv.DictReader(source))
    page = (ROOT / "docs" / "example.md").read_text(encoding="utf-8")
    for row in rows[:3]:
        effect, low, high, truth = (
            f"{float(row[name]):.1f}" for name in ("effect_pct", "low_pct", "high_pct", "truth_pct")
        )
        assert f"| {row['concurrency']} | {effect} % | {low} to {high} | {truth} |" in page
    assert {row["outcome"] for row in rows} == {"worse"}
    assert f"held the truth {sum(row['holds'] == 'True' for row in rows)} times of {len(rows)}" in page


@pytest.mark.parametrize("picture", sorted((ROOT / "docs" / "images").iterdir()), ids=named)
def test_a_picture_is_small_and_shown_by_a_page(picture: Path) -> None:
    assert picture.stat().st_size < 150_000
    assert any(f"images/{picture.name})" in page.read_text(encoding="utf-8") for page in PAGES)


def test_a_folder_with_other_files_is_not_emptied(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(UsageError, match="holds other files"):
        require_own(tmp_path)
    (tmp_path / "sitemap.xml").write_text("")
    require_own(tmp_path)


def test_a_dead_anchor_stops_the_build(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# Page\n\n[dead](#nowhere)\n")
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    (tmp_path / "mkdocs.yml").write_text(config.partition("\nnav:")[0])
    command = site_command(tmp_path / "site")
    built = subprocess.run(command, cwd=tmp_path, env=site_environment(), capture_output=True, text=True)
    assert built.returncode == 1
    assert "nowhere" in built.stderr


@pytest.mark.parametrize("out", ["README.md", "README.md/site", "README.md/site/more"])
def test_a_site_is_not_built_where_a_file_is_in_the_way(out: str) -> None:
    with pytest.raises(UsageError, match=f"^--out {ROOT / out}: {ROOT / 'README.md'} is a file; name a new or empty"):
        require_own(ROOT / out)
