from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.container.routing import PROMETHEUS_PORT
from app.engine.sim.metrics import Counters, Gauges, exposition
from app.settings import Deployment

MONITORING = Path(__file__).resolve().parent.parent / "deploy" / "monitoring"
PROMETHEUS_OWN = {"up"}


def dashboard_queries() -> list[str]:
    dashboard = json.loads((MONITORING / "grafana" / "dashboards" / "decode-ab.json").read_text(encoding="utf-8"))
    return [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


def metrics_of(query: str) -> set[str]:
    by_prefix = set(re.findall(r"\bsglang:\w+", query))
    return by_prefix | (PROMETHEUS_OWN & set(re.findall(r"\w+", query)))


def scraped() -> list[dict[str, Any]]:
    jobs = yaml.safe_load((MONITORING / "prometheus.yml").read_text(encoding="utf-8"))["scrape_configs"]
    return [static for job in jobs for static in job["static_configs"]]


def exported(role: str) -> set[str]:
    lines = exposition(role, "model", Counters(), Gauges(), {}).splitlines()
    return {re.split(r"[{ ]", line)[0] for line in lines if not line.startswith("#")}


@pytest.mark.parametrize("query", dashboard_queries())
def test_the_dashboard_asks_a_role_for_nothing_that_it_does_not_export(query: str) -> None:
    asked = metrics_of(query)
    assert asked
    for role in re.findall(r'role="(\w+)"', query) or ("decode", "prefill"):
        assert asked - PROMETHEUS_OWN <= exported(role)


@pytest.mark.parametrize("query", dashboard_queries())
def test_every_role_that_the_dashboard_asks_for_is_scraped(query: str) -> None:
    roles = {static["labels"]["role"] for static in scraped()}
    assert set(re.findall(r'role="(\w+)"', query)) <= roles


def test_prometheus_asks_each_server_at_its_own_port() -> None:
    settings = Deployment()
    assert [target for static in scraped() for target in static["targets"]] == [
        f"prefill:{settings.prefill_port}",
        f"decode:{settings.decode_port}",
        f"router:{PROMETHEUS_PORT}",
    ]
