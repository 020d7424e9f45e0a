"""Hooks into Locust's web UI through its own extension points: template arguments, a blueprint, a response hook."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from flask import Blueprint, Response, abort, jsonify, render_template, request, send_file

from loadtest.client.rows import LOAD, ROWS
from loadtest.drive.session import Session

TAB = "decode-ab"
COLUMNS = {
    "name": "Level",
    "state": "State",
    "tokensPerS": "Output tok/s",
    "ttftMs": "TTFT ms",
    "tpotMs": "TPOT ms",
    "itlP99Ms": "ITL p99 ms",
    "e2eMs": "E2E ms",
    "requests": "Requests",
    "failures": "Failures",
}


def extend(web_ui: Any, session: Session) -> None:
    """Adds tab, page and downloads to a Locust web UI."""
    # Locust turns table keys into camel case, the rows' keys too.
    structure = [{"key": key, "title": title} for key, title in COLUMNS.items()]
    web_ui.template_args |= {
        "extended_tabs": [{"title": "Decode A/B", "key": TAB}],
        "extended_tables": [{"key": TAB, "structure": structure}],
        "extended_csv_files": [
            {"href": f"./{TAB}", "title": "Live decode A/B page"},
            {"href": f"./{TAB}/rows.parquet", "title": "Download raw rows (Parquet)"},
            {"href": f"./{TAB}/load.json", "title": "Download levels, guards and server counters (JSON)"},
        ],
    }
    base = getattr(web_ui, "web_base_path", "") or ""
    web_ui.app.register_blueprint(blueprint(web_ui, session), url_prefix=f"{base}/{TAB}")

    def add_figures(response: Response) -> Response:
        if request.path == f"{base}/stats/requests" and response.is_json:
            figures = [{_camel(k): v for k, v in row.items()} for row in session.view()["levels"]]
            data = {**(response.get_json() or {}), "extended_stats": [{"key": TAB, "data": figures}]}
            response.set_data(json.dumps(data))
        return response

    web_ui.app.after_request(add_figures)


def blueprint(web_ui: Any, session: Session) -> Blueprint:
    """The live page, its data and the downloads, behind Locust's own login where there is one."""
    pages = Blueprint("decode_ab", __name__, template_folder="templates")

    def page() -> str:
        return render_template("live.html")

    def figures() -> Response:
        return jsonify(session.view())

    def record(name: str) -> Response:
        path = None if session.last_folder is None else session.last_folder / name
        if path is None or not path.exists():
            abort(404, "no finished run yet; the record is written when a run stops")
        return send_file(path.resolve(), as_attachment=True, download_name=name)

    views: dict[str, Callable[..., Any]] = {
        "": page,
        "/live.json": figures,
        f"/<any('{ROWS}', '{LOAD}'):name>": record,
    }
    for rule, view in views.items():
        pages.add_url_rule(rule, view_func=web_ui.auth_required_if_enabled(view))
    return pages


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)
