from __future__ import annotations

import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from app.records import read_json, write_json
from app.report.campaign_view import CampaignView, read_campaign
from app.report.html import render_html
from loadtest.judge.facts import VariantFacts
from tests.app.report.made_campaign import EFFECTS, RECORDS, draw_cells, make_campaign, make_plan

VOID = {"meta", "link", "br", "img", "hr"}


class Page(HTMLParser):
    """Collects ids, links and tags, and whether every element is closed by its own name."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.words: list[str] = []
        self.torn: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.ids += [v for k, v in attrs if k == "id" and v]
        self.links += [v for k, v in attrs if k in ("href", "src", "xlink:href") and v]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.torn.append(tag)

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.fixture(scope="module")
def text(view: CampaignView) -> str:
    return render_html(view)


@pytest.fixture
def copied(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / folder.name))


def test_page_is_well_formed(text: str) -> None:
    page = Page(text)
    assert page.torn == []
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))


def test_page_needs_nothing_from_outside(text: str) -> None:
    page = Page(text)
    assert {"script", "link", "img", "iframe", "object"}.isdisjoint(page.tags)
    assert all(link.startswith("#") for link in page.links)
    assert "url(" not in text
    assert "@import" not in text
    assert "Content-Security-Policy" in text


def test_links_lead_to_parts_of_the_page(text: str) -> None:
    page = Page(text)
    assert {link[1:] for link in page.links} <= set(page.ids)


def test_verdict_comes_before_every_figure(text: str) -> None:
    assert text.index("v1 is rejected") < text.index('class="card') < text.index("<svg")


def test_simulated_mark_stands_above_the_verdict_and_in_the_title(text: str) -> None:
    assert text.index('<div class="simulated">') < text.index("<h1>")
    assert "<title>SIMULATED: " in text
    assert "time scale 10" in text


def test_measured_campaign_has_no_simulated_mark(copied: Path) -> None:
    write_json(copied / "manifest.json", read_json(copied / "manifest.json") | {"simulated": False})
    text = render_html(read_campaign(copied))
    assert "SIMULATED" not in text
    assert '<div class="simulated">' not in text


def test_every_judged_number_is_in_words_as_well_as_in_charts(text: str, view: CampaignView) -> None:
    words = " ".join(Page(text).words)
    for judged in view.judged:
        for level in judged.levels:
            assert level.simultaneous is not None
            low, high = level.simultaneous
            assert f"{low:+.1f} to {high:+.1f}".replace("+0.0", "0.0").replace("-0.0", "0.0") in words


def test_outcomes_differ_in_shape_and_words_not_only_in_colour(text: str) -> None:
    forest = text.split("Effect of v2 against pinned")[1].split("</svg>")[0]
    assert {"worse", "better"} <= set(re.findall(r"outcome (\w+)\"", forest))
    assert len(set(re.findall(r'<polygon points="([^"]+)"', forest))) > 1
    assert "stroke-dasharray" in text


HOSTILE = "<script>alert('x')</script>\"'&<img src=x onerror=alert(1)>"


@pytest.mark.parametrize("place", ["hypothesis", "model", "host", "answer", "stamp", "config"])
def test_words_from_outside_are_escaped(copied: Path, place: str) -> None:
    start = next(copied.glob("blocks/000/start-*"))
    edits = {
        "hypothesis": ("manifest.json", {"variants": {"v1": {**RECORDS["v1"], "hypothesis": HOSTILE}}}),
        "model": ("manifest.json", {"stack": {"model": HOSTILE}}),
        "host": (f"{start}/conditions.json", {"host": HOSTILE}),
        "config": (f"{start}/proof.json", {"config": HOSTILE}),
        "answer": ("blocks/000/block.json", {"void": [HOSTILE]}),
        "stamp": ("verdict.json", {"notes": [HOSTILE]}),
    }
    name, change = edits[place]
    write_json(copied / name, read_json(copied / name) | change)
    text = render_html(read_campaign(copied))
    assert "<script" not in text
    assert "<img" not in text
    assert Page(text).torn == []


def test_hostile_void_reason_is_escaped_and_shown_at_the_top(tmp_path: Path) -> None:
    plan = make_plan()
    cells = [replace(c, reasons=(f"model said {HOSTILE}",)) if c.block == 1 else c for c in draw_cells(plan)]
    text = render_html(read_campaign(make_campaign(tmp_path / "void", plan, cells)))
    assert "1 void block" in text
    assert text.index("block 2: model said &lt;script&gt;") < text.index('class="card')
    assert "<script" not in text


def test_campaign_without_rows_is_still_drawn(copied: Path) -> None:
    for path in copied.glob("blocks/*/*/rows.parquet"):
        path.unlink()
    text = render_html(read_campaign(copied))
    assert "rows.parquet cannot be drawn" in text
    assert "Block differences of v1" in text
    assert "Tokens per second over time" not in text


def test_campaign_without_verdict_says_so(copied: Path) -> None:
    (copied / "verdict.json").unlink()
    text = render_html(read_campaign(copied))
    assert "No verdict: this campaign has not been judged" in text
    assert "verdict.json could not be read" in text


def test_interim_campaign_is_marked_not_a_verdict(tmp_path: Path) -> None:
    plan = make_plan()
    cells = [c for c in draw_cells(plan) if c.block < 3]
    text = render_html(read_campaign(make_campaign(tmp_path / "interim", plan, cells)))
    assert text.index("NOT A VERDICT") < text.index("<h1>")
    assert "is rejected" not in text


def test_comparison_of_equal_code_is_shown_beside_a_later_campaign(tmp_path: Path) -> None:
    plan = make_plan()
    same = {"v1": VariantFacts(same_code=True)}
    make_campaign(tmp_path / "20261101-000000", plan, draw_cells(plan, {}), facts=same)
    text = render_html(read_campaign(make_campaign(tmp_path / "20261102-000000", plan, draw_cells(plan, EFFECTS))))
    assert "v1 against pinned in campaign 20261101-000000: 0 differences claimed where there is none" in text


def test_absence_of_such_a_comparison_is_said(text: str) -> None:
    assert "No campaign beside this one compares a control with its own code" in text


def test_same_folder_gives_the_same_page(text: str, view: CampaignView) -> None:
    assert render_html(view) == text


def test_a_slope_without_an_answer_is_said(view: CampaignView) -> None:
    few = replace(view, cells=tuple(c for c in view.cells if c.block < 2))
    assert "slope not answered for pinned, v1 and v2" in render_html(few, (2, 4))
    assert "slope not answered" not in render_html(view, (2, 4))
