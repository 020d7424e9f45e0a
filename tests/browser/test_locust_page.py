"""Locust's page with the lab's part of it, in a real browser: a run started by the form, numbers that move."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.support.ui import WebDriverWait

from tests.browser.pictures import take_picture

pytestmark = pytest.mark.browser

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 25


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


def wait_for(url: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise TimeoutError(url)


@pytest.fixture(scope="module")
def mock() -> Iterator[str]:
    port = free_port()
    argv = [sys.executable, "-m", "app.engine.sim", "--role", "single", "--port", str(port), "--pdeathsig"]
    with subprocess.Popen([*argv, "--script", "builtin"], cwd=ROOT) as process:
        wait_for(f"http://127.0.0.1:{port}/health")
        yield f"http://127.0.0.1:{port}"
        process.terminate()


@pytest.fixture(scope="module")
def locust(mock: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Locust's page, before any run."""
    port = free_port()
    argv = [sys.executable, "-m", "locust", "-f", "loadtest/locustfile.py", "--web-host", "127.0.0.1"]
    argv += ["--web-port", str(port), "--host", mock, "--decode-ab-decode-url", mock]
    argv += ["--decode-ab-out", str(tmp_path_factory.mktemp("out"))]
    with subprocess.Popen(argv, cwd=ROOT, stderr=subprocess.DEVNULL) as process:
        wait_for(f"http://127.0.0.1:{port}/decode-ab/live.json")
        yield f"http://127.0.0.1:{port}"
        process.terminate()


def until(browser: webdriver.Chrome, what: Callable[[], Any]) -> Any:
    return WebDriverWait(browser, LIMIT_S, 0.3).until(lambda _: what())


def view(locust: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{locust}/decode-ab/live.json") as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def fill(browser: webdriver.Chrome, name: str, text: str) -> None:
    field = browser.find_element("css selector", f"input[name={name}]")
    field.send_keys("\ue009a\ue000", text)  # control-a, then the text


def rows_of(browser: webdriver.Chrome, body: str) -> list[list[str]]:
    script = (
        "return [...document.querySelectorAll(arguments[0] + ' tr')].map(r => [...r.cells].map(c => c.textContent))"
    )
    found: list[list[str]] = browser.execute_script(script, body)
    return found


def test_run_started_by_the_form_moves_the_figures(browser: webdriver.Chrome, locust: str, tmp_path: Path) -> None:
    browser.get(locust)
    until(browser, lambda: browser.find_elements("css selector", "button[type=submit]"))
    browser.find_element("xpath", "//button[contains(., 'Custom parameters')]").click()
    until(browser, lambda: browser.find_element("css selector", "input[name=decodeAbLengths]").is_displayed())
    fill(browser, "decodeAbLengths", "16,50")
    fill(browser, "decodeAbConcurrencies", "2,5")
    fill(browser, "decodeAbWindow", "1,5")
    take_picture(browser, tmp_path, "form")
    browser.find_element("css selector", "button[type=submit]").click()
    until(browser, lambda: view(locust)["phase"] == "window" and view(locust)["trace"])
    assert [level["name"] for level in view(locust)["levels"]] == ["C=2", "C=5"]

    until(browser, lambda: browser.find_elements("xpath", "//button[contains(., 'Decode A/B')]"))[0].click()
    until(browser, lambda: any(row[:1] == ["C=2"] and row[3] for row in rows_of(browser, "tbody")))
    take_picture(browser, tmp_path, "tab")
    assert [e for e in browser.get_log("browser") if e["level"] == "SEVERE"] == []  # type: ignore[no-untyped-call]


def test_live_page_shows_the_run_and_no_verdict(browser: webdriver.Chrome, locust: str, tmp_path: Path) -> None:
    browser.get(f"{locust}/decode-ab")
    until(browser, lambda: len(rows_of(browser, "#levels")) == 2)
    first = rows_of(browser, "#levels")
    until(browser, lambda: rows_of(browser, "#levels") != first)
    text = browser.find_element("css selector", "main").text
    assert "not a verdict" in text
    assert "as-deployed" in text
    until(browser, lambda: view(locust)["phase"] == "done")
    until(browser, lambda: [row[1] for row in rows_of(browser, "#levels")] == ["measured", "measured"])
    tokens_per_s = float(rows_of(browser, "#levels")[1][2])
    assert tokens_per_s == pytest.approx(5 * 50 / 0.54, rel=0.3)
    take_picture(browser, tmp_path, "load_page", documented=True)
    assert browser.get_log("browser") == []  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("width", [390, 1280])
def test_live_page_never_scrolls_sideways(browser: webdriver.Chrome, locust: str, width: int, tmp_path: Path) -> None:
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.get(f"{locust}/decode-ab")
    until(browser, lambda: rows_of(browser, "#levels"))
    take_picture(browser, tmp_path, f"width-{width}")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width


def test_raw_rows_can_be_downloaded(locust: str, tmp_path: Path) -> None:
    from loadtest.client.rows import read_rows

    until_written = time.monotonic() + LIMIT_S
    while time.monotonic() < until_written and view(locust)["phase"] != "done":
        time.sleep(0.2)
    wait_for(f"{locust}/decode-ab/rows.parquet")
    with urllib.request.urlopen(f"{locust}/decode-ab/rows.parquet") as answer:
        (tmp_path / "rows.parquet").write_bytes(answer.read())
    assert set(read_rows(tmp_path).error_kind) == {""}
    with urllib.request.urlopen(f"{locust}/decode-ab/load.json") as answer:
        assert len(json.load(answer)["levels"]) == 2


def test_hostile_names_are_shown_as_text(browser: webdriver.Chrome, locust: str) -> None:
    browser.get(f"{locust}/decode-ab")
    until(browser, lambda: rows_of(browser, "#levels"))
    hostile = "<img src=x onerror=alert(1)>"
    shown = json.dumps({**view(locust), "variant": hostile, "error": hostile, "proof": hostile})
    browser.execute_script(f"show({shown})")
    assert hostile in browser.find_element("css selector", "#facts").text
    assert browser.find_elements("css selector", "main img") == []


def test_wrong_input_is_said_on_the_page_and_the_next_run_works(browser: webdriver.Chrome, locust: str) -> None:
    form = "decode_ab_lengths=0,5&host=http://127.0.0.1:9"
    urllib.request.urlopen(f"{locust}/swarm", data=form.encode()).close()
    browser.get(f"{locust}/decode-ab")
    until(browser, lambda: "lengths must be at least 1" in browser.find_element("css selector", "#error").text)
