from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from app.campaign.compare import write_plan
from app.campaign.facts import balanced, campaign_facts
from app.campaign.runs import RunFolder
from app.campaign.runtimes import Setup, make_ready, require_runnable, setup_of
from app.engine.sglang.engine import SglangEngine
from app.errors import NotReadyError, UsageError
from app.kernel.variant import Change, KernelConfig, Target
from app.kernel.variants import Registry, load_variants
from app.records import write_json
from app.stack.local import LocalStack
from loadtest.client.key import KEY_FILE
from loadtest.plan import Lengths, Plan
from tests.app.engine.sglang.standin import make_standin

SERVER = "topology=single,heads=16,arch=90"


def plan(time_scale: float = 1.0) -> Plan:
    return write_plan(["v1"], [1], blocks=4, time_scale=time_scale, seed=1)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_standin(tmp_path / "home" / "site", sm120=False)
    told = {"version": "0.5.17", "paths": ["site"], "environment": {}}
    write_json(tmp_path / "home" / "installation.json", told)
    monkeypatch.setenv("SGLANG_HOME", str(tmp_path / "home"))
    return tmp_path


def test_a_config_without_a_timing_is_refused_before_anything_starts() -> None:
    registry = load_variants()
    odd = replace(registry.get("v1"), change=Change(configs=(KernelConfig({"BLOCK_T": 16}, 2, 2),)))
    with pytest.raises(UsageError, match=r"no timing for \(16,2,2\).*--calibration"):
        require_runnable(Setup(), plan(), Registry({**registry.variants, "v1": odd}))
    require_runnable(Setup(), plan(), registry)


@pytest.mark.parametrize("setup", [Setup(), Setup("docker")])
def test_a_variant_of_another_module_is_refused_by_it_on_every_engine(setup: Setup) -> None:
    registry = load_variants()
    far = replace(registry.get("v1"), target=Target("sglang.far", "_kernel"), change=Change())
    with pytest.raises(UsageError, match=r"v1 changes sglang\.far; compare puts one file in place, sglang/.*\.py of"):
        require_runnable(setup, plan(), Registry({**registry.variants, "v1": far}))


@pytest.mark.parametrize(
    ("setup", "limit"),
    [
        (Setup(), "the simulated engine's limit of 256"),
        (Setup("docker"), "MAX_RUNNING_REQUESTS=128"),
        (Setup("docker", "sglang"), "MAX_RUNNING_REQUESTS=128"),
        (Setup("local", "sglang"), "max_running=96"),
    ],
)
def test_more_at_once_than_decode_serves_is_refused_with_both_numbers(setup: Setup, limit: str) -> None:
    with pytest.raises(UsageError, match=f"concurrency 500 is above {limit}"):
        require_runnable(setup, replace(plan(), concurrencies=(1, 500)), load_variants())


@pytest.mark.parametrize(
    ("setup", "lengths", "context"),
    [
        (Setup(), (131_064, 9), "131072 tokens"),
        (Setup("docker"), (131_064, 9), "131072 tokens"),
        (Setup("local", "sglang"), (3000, 1097), "4096 tokens .* or a larger context_length in --server"),
        (Setup(server={"context_length": "64"}, engine="sglang"), (64, 1), "64 tokens"),
    ],
)
def test_requests_longer_than_the_engines_context_are_refused(
    setup: Setup, lengths: tuple[int, int], context: str
) -> None:
    with pytest.raises(UsageError, match=f"lengths {lengths[0]},{lengths[1]} do not fit the context of {context}"):
        require_runnable(setup, replace(plan(), lengths=Lengths(*lengths)), load_variants())


def test_requests_that_fill_the_context_are_run() -> None:
    require_runnable(Setup(), replace(plan(), lengths=Lengths(131_063, 9)), load_variants())


def test_sglang_that_is_not_there_is_missed_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_PYTHON", "/nowhere/python")
    with pytest.raises(NotReadyError):
        require_runnable(setup_of("local", "sglang", "", "dummy-dsv4", SERVER), plan(), load_variants())


def test_a_campaign_on_sglang_itself_has_its_stack_and_a_kernel_for_each_variant(home: Path) -> None:
    setup = setup_of("local", "sglang", "", "dummy-dsv4", SERVER)
    kernels, stack = make_ready(setup, plan(), load_variants(), home / "run", print)
    assert isinstance(stack, LocalStack)
    assert isinstance(stack.engine, SglangEngine)
    assert (stack.simulated, stack.manifest()["router"], sorted(kernels)) == (False, "none", ["pinned", "v1"])


def test_a_time_scale_on_a_real_engine_is_refused(home: Path) -> None:
    setup = setup_of("local", "sglang", "", "", SERVER)
    with pytest.raises(UsageError, match="time scale 20 on a real engine"):
        make_ready(setup, plan(20), load_variants(), home / "run", print)


def test_a_model_that_is_not_there_is_refused(home: Path) -> None:
    setup = setup_of("local", "sglang", "", "/nowhere", "topology=single,arch=120")
    with pytest.raises(NotReadyError, match=r"/nowhere/config\.json is missing"):
        make_ready(setup, plan(), load_variants(), home / "run", print)


@pytest.mark.parametrize(("runtime", "engine"), [("docker", "sglang"), ("local", "sim")])
def test_server_settings_elsewhere_are_refused(runtime: str, engine: str) -> None:
    with pytest.raises(UsageError, match="--runtime local --engine sglang"):
        setup_of(runtime, engine, "", "dummy-dsv4", "")


@pytest.mark.parametrize(("runtime", "engine"), [("docker", "sim"), ("docker", "sglang"), ("local", "sglang")])
def test_a_calibration_that_nothing_would_read_is_refused_before_anything_starts(runtime: str, engine: str) -> None:
    with pytest.raises(UsageError, match="--calibration is of --runtime local --engine sim"):
        setup_of(runtime, engine, "mine.yaml", "", "")


def test_a_taken_port_is_refused_before_an_image_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, dict[str, int]]] = []
    monkeypatch.setattr("app.campaign.container_runtime.require_ports_free", lambda *given: asked.append(given))
    monkeypatch.setenv("ROUTER_PUBLISH", "8123")
    require_runnable(Setup("docker"), plan(), load_variants())
    assert asked == [("decode-ab-campaign", {"ROUTER_PUBLISH": 8123})]


def test_one_control_may_stand_for_all() -> None:
    assert write_plan(["fast", "v2", "upstream"], [1], blocks=4, against="upstream").controls == {
        "fast": "upstream",
        "v2": "upstream",
    }
    with pytest.raises(UsageError, match="leaves no variant"):
        write_plan(["upstream"], [1], blocks=4, against="upstream")


def test_one_control_for_all_must_have_their_target(monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = load_variants()
    odd = replace(shipped.get("upstream"), name="odd", target=Target("sglang.other", "k"))
    monkeypatch.setattr("app.campaign.compare.load_variants", lambda: Registry({**shipped.variants, "odd": odd}))
    with pytest.raises(UsageError, match=r"--against 'upstream' targets .*, not k of sglang\.other; needed is control"):
        write_plan(["odd"], [1], blocks=4, against="upstream")


def test_the_mini_load_balancer_is_named_in_manifest_and_verdict(home: Path) -> None:
    setup = setup_of("local", "sglang", "", "dummy-dsv4", f"{SERVER},topology=pd,balancer=mini")
    _, stack = make_ready(setup, plan(), load_variants(), home / "run", print)
    (note,) = balanced({"stack": stack.manifest()})
    assert note.startswith("requests passed sglang-router 0.3.2, its mini load balancer, in place of the router")
    assert balanced({"stack": {"router": "sglang-router 0.3.2"}}) == ()


def test_the_mini_load_balancer_is_refused_where_a_key_has_to_pass_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "key").write_text("secret\n")
    monkeypatch.setenv(KEY_FILE, str(home / "key"))
    setup = setup_of("local", "sglang", "", "dummy-dsv4", f"{SERVER},topology=pd,balancer=mini")
    with pytest.raises(UsageError, match="balancer=mini passes no key on to the servers"):
        make_ready(setup, plan(), load_variants(), home / "run", print)


def test_a_forced_path_is_stamped_on_what_rests_on_it(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    kernel = {"sha256": "ab", "base_sha256": "cd"}
    kernels = {"fast": kernel | {"selector": "triton"}, "flashmla": kernel | {"selector": "flashmla"}}
    path = "path forced on sm_90: timings are this GPU's"
    write_json(folder.manifest_file, {"simulated": False, "kernels": kernels, "stack": {"path": path}})
    facts = campaign_facts(folder, write_plan(["fast"], [1], blocks=4, against="flashmla"))
    assert (facts.variants["fast"].stamps, facts.variants["flashmla"].stamps) == ((path,), ())
    assert path in facts.notes
