from __future__ import annotations

import io
import json
import socket
from pathlib import Path

import pytest
from rich.console import Console

from app.doctor import examination
from app.doctor.examination import CHECKS, Check, as_data, examine, failures, print_findings, show_doctor, this_host
from app.doctor.finding import Finding, fail, ok, skipped, warn
from app.doctor.ports import ports
from app.errors import NotReadyError, UsageError
from tests.app.doctor.machine import DOWN, INFO, machine


def test_every_check_has_a_name_of_its_own() -> None:
    assert len({check.name for check in CHECKS}) == len(CHECKS)


def test_what_the_simulated_engine_on_processes_needs_asks_no_other_program(tmp_path: Path) -> None:
    findings = examine(machine(tmp_path, engine="sim"))
    looked = {name for name, finding in findings.items() if "does not need it" not in finding.found}
    assert looked == {
        "python",
        "environment",
        "locks",
        "wheel",
        "triton",
        "runs",
        "memory",
        "cpus",
        "load",
        "labs",
        "open files",
    }


def test_a_bare_machine_fails_where_the_real_engine_stands_and_skips_what_hangs_on_it(tmp_path: Path) -> None:
    findings = examine(machine(tmp_path, {INFO: DOWN, "docker compose": "2.39.1"}, model_path="/nowhere"))
    assert {"docker", "driver", "model"} <= set(failures(findings))
    assert {findings[name].status for name in ("gpus", "peers", "docker disk", "sglang image", "weights")} == {
        "skipped"
    }


def test_a_line_that_is_not_ok_says_what_to_do(tmp_path: Path) -> None:
    findings = examine(machine(tmp_path)).values()
    assert all("\n" not in f.found + f.remedy and (f.status == "ok") != bool(f.remedy) for f in findings)


@pytest.mark.parametrize(("status", "remedy"), [("ok", "do this"), ("fail", "")])
def test_a_finding_without_its_remedy_cannot_be_made(status: str, remedy: str) -> None:
    with pytest.raises(ValueError, match="with remedy"):
        Finding(status, "found", remedy)  # type: ignore[arg-type]


def test_the_json_form_has_one_entry_a_check(tmp_path: Path) -> None:
    host = machine(tmp_path, engine="sim")
    data = json.loads(json.dumps(as_data(host, {"a": ok("fine"), "b": fail("gone", "get it")})))
    assert (data["engine"], data["runtime"], data["ready"]) == ("sim", "local", False)
    assert data["checks"][1] == {"check": "b", "status": "fail", "found": "gone", "remedy": "get it"}


def test_lines_are_not_wrapped_and_equal_ones_are_told_once() -> None:
    out = io.StringIO()
    none = skipped("no card was read", "mend the line driver first")
    print_findings({"gpus": none, "long": warn("w" * 200, "less"), "peers": none}, Console(file=out, width=80))
    assert out.getvalue().splitlines() == [
        "skipped gpus, peers  no card was read  -> mend the line driver first",
        f"warn    long   {'w' * 200}  -> less",
    ]


@pytest.mark.parametrize("as_json", [False, True])
def test_failures_are_raised_after_everything_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    checks = (Check("one", lambda _: fail("gone", "get it")), Check("two", lambda _: ok("fine")))
    monkeypatch.setattr(examination, "CHECKS", checks)
    with pytest.raises(NotReadyError, match=r"1 of 2 checks failed \(one\)"):
        show_doctor("sim", "", as_json)
    assert "fine" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("engine", "runtime", "says"),
    [
        ("vllm", "docker", "unknown engine"),
        ("sim", "podman", "unknown runtime"),
        ("sglang", "local", "--runtime docker"),
    ],
)
def test_what_cannot_be_asked_is_refused(engine: str, runtime: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        this_host(engine, runtime)


def test_a_taken_port_is_named_with_its_setting(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        finding = ports(machine(tmp_path, router_publish=port))
    assert (finding.status, finding.found) == ("fail", f"in use: ROUTER_PUBLISH={port}")


def test_two_hosts_need_the_servers_ports_too(tmp_path: Path) -> None:
    with socket.create_server(("0.0.0.0", 0)) as server:
        finding = ports(machine(tmp_path, bootstrap_port=server.getsockname()[1], host_ip="10.0.0.1"))
    assert "BOOTSTRAP_PORT" in finding.found
