from __future__ import annotations

from pathlib import Path

import pytest
from selenium import webdriver

from app.report import write_reports
from tests.app.report.made_campaign import draw_cells, make_campaign, make_plan
from tests.browser.pictures import take_picture

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    plan = make_plan()
    folder = make_campaign(tmp_path_factory.mktemp("runs") / "20261102-090501", plan, draw_cells(plan))
    return write_reports(folder).html.resolve().as_uri()


def test_page_opens_without_a_word_on_the_console(browser: webdriver.Chrome, page: str) -> None:
    browser.get(page)
    assert browser.find_element("css selector", "h1").text == "v1 is rejected; v2 is undecided"
    assert browser.get_log("browser") == []  # type: ignore[no-untyped-call]


def test_first_screen_shows_what_was_decided_of_each_variant(
    browser: webdriver.Chrome, page: str, tmp_path: Path
) -> None:
    metrics = {"width": 1200, "height": 760, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.get(page)
    take_picture(browser, tmp_path, "report", documented=True)
    cards = browser.find_elements("css selector", "article.card")
    assert len(cards) == 2
    assert all(card.rect["y"] + card.rect["height"] <= 760 for card in cards)


@pytest.mark.parametrize("width", [390, 768, 1280])
def test_page_never_scrolls_sideways(browser: webdriver.Chrome, page: str, width: int) -> None:
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.get(page)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_stand_out_from_the_page_in_both_schemes(browser: webdriver.Chrome, page: str, scheme: str) -> None:
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    browser.get(page)
    weakest = browser.execute_script(CONTRAST)
    assert weakest["ratio"] >= 4.5, weakest


def test_print_is_black_on_white_whatever_the_scheme(browser: webdriver.Chrome, page: str) -> None:
    media = {"media": "print", "features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    browser.get(page)
    body = "getComputedStyle(document.body)"
    assert browser.execute_script(f"return [{body}.backgroundColor, {body}.color]") == [
        "rgb(255, 255, 255)",
        "rgb(0, 0, 0)",
    ]


def test_no_words_of_a_chart_are_cut_off(browser: webdriver.Chrome, page: str) -> None:
    browser.get(page)
    assert browser.execute_script(CUT) == []


CONTRAST = """
const rgb = c => c.match(/[\\d.]+/g).map(Number);
const light = c => rgb(c).slice(0, 3).map(v => v / 255)
  .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const back = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
  if (rgb(c).length < 4 || rgb(c)[3] > 0) return c; } return 'rgb(255, 255, 255)'; };
const said = [...document.querySelectorAll('p, li, td, th, h1, h2, h3, a, span, figcaption, svg text, svg tspan')];
return said.filter(e => e.textContent.trim()).map(e => {
  const style = getComputedStyle(e), ink = e.closest('svg') ? style.fill : style.color;
  const [a, b] = [light(ink), light(back(e))].sort((x, y) => y - x);
  return {ratio: (a + 0.05) / (b + 0.05), words: e.textContent.trim().slice(0, 40)};
}).reduce((weak, e) => e.ratio < weak.ratio ? e : weak);
"""

CUT = """
return [...document.querySelectorAll('svg.chart')].flatMap(svg => {
  const box = svg.viewBox.baseVal;
  return [...svg.querySelectorAll('text')].filter(t => {
    const b = t.getBBox();
    return b.width && (b.x < -1 || b.y < -1 || b.x + b.width > box.width + 1 || b.y + b.height > box.height + 1);
  }).map(t => t.textContent);
});
"""
