"""Kubernetes manifests: valid by schema, equal to what is committed, and of one mind with the compose files."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from app.deployment.kubernetes import ENGINE_KEYS, FOLDER, ROLE_KEYS, ROUTER_KEYS, render
from app.environment import ROOT
from app.kernel.selector import SELECTOR
from app.kernel.variants import load_variants
from app.settings import Deployment

VARIANTS = tuple(load_variants().variants.values())
SPANNING = Deployment(prefill_nodes=2, decode_nodes=2, prefill_tp=8, decode_tp=8, host_ip="x")
SEVERAL = Deployment(prefill_urls="a,b", decode_urls="a,b,c")
LAYOUTS = [Deployment(), SPANNING, SEVERAL]
NAMES = ["one host each", "roles that span hosts", "2P3D"]


def documents(settings: Deployment) -> list[dict[str, Any]]:
    files = render(settings, VARIANTS)
    return [d for name, text in files.items() if "kustomization" not in name for d in yaml.safe_load_all(text)]


def templates(document: dict[str, Any]) -> list[dict[str, Any]]:
    spec = document["spec"]
    inner = spec.get("leaderWorkerTemplate", spec)
    return [inner[key] for key in ("template", "leaderTemplate", "workerTemplate") if key in inner]


def environment(document: dict[str, Any]) -> dict[str, Any]:
    return {v["name"]: v.get("value") for v in templates(document)[0]["spec"]["containers"][0]["env"]}


@pytest.mark.parametrize("settings", LAYOUTS, ids=NAMES)
def test_manifests_are_valid(settings: Deployment) -> None:
    schemas = pytest.importorskip("kubernetes_validate", reason="needs the schemas of kubernetes-validate")
    lws = json.loads(Path(__file__).with_name("leader_worker_set.schema.json").read_text())
    for document in documents(settings):
        if document["kind"] == "LeaderWorkerSet":
            jsonschema.validate(document, lws)
            pods = [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, **t} for t in templates(document)]
        else:
            pods = [document]
        for checked in pods:
            schemas.validate(checked, schemas.latest_version(), strict=True)


def test_committed_manifests_are_the_rendered_ones() -> None:
    files = render(Deployment(), VARIANTS)
    committed = {str(p.relative_to(ROOT / FOLDER)): p.read_text() for p in (ROOT / FOLDER).rglob("*.yaml")}
    assert committed == files, "invoke manifests renders them anew"


@pytest.mark.parametrize("settings", LAYOUTS, ids=NAMES)
def test_every_container_is_hardened(settings: Deployment) -> None:
    for template in (
        t for d in documents(settings) if d["kind"] not in ("Service", "NetworkPolicy") for t in templates(d)
    ):
        pod, (container,) = template["spec"], template["spec"]["containers"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["automountServiceAccountToken"] is False
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        # Or the address that Kubernetes sets for service "prefill" would be read as the setting PREFILL_PORT.
        assert pod["enableServiceLinks"] is False


@pytest.mark.parametrize("settings", LAYOUTS, ids=NAMES)
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: v.name)
def test_overlay_puts_the_variant_into_decode_alone(settings: Deployment, variant: Any) -> None:
    overlay = yaml.safe_load(render(settings, VARIANTS)[f"overlays/{variant.name}/kustomization.yaml"])
    tags = {image["name"]: image["newTag"] for image in overlay["images"]}
    assert tags == {"decode-ab-prefill": settings.prefill_variant, "decode-ab-decode": variant.name}
    (patch,) = overlay["patches"]
    decode = next(
        d for d in documents(settings) if d["metadata"]["name"] == "decode" and d["kind"] == patch["target"]["kind"]
    )
    for operation in yaml.safe_load(patch["patch"]):
        assert reached(decode, operation["path"].removesuffix("/value"))["name"] == SELECTOR
        assert (operation["op"], operation["value"]) == ("replace", variant.selector)


def reached(document: Any, path: str) -> Any:
    for part in path.strip("/").split("/"):
        document = document[int(part)] if part.isdigit() else document[part]
    return document


def test_router_names_every_worker() -> None:
    router = next(d for d in documents(SEVERAL) if d["kind"] == "Deployment")
    assert environment(router)["DECODE_URLS"].split(",") == [f"http://decode-{i}.decode:30001" for i in range(3)]
    assert environment(router)["PREFILL_URLS"].split(",") == [f"http://prefill-{i}.prefill:30000" for i in range(2)]


def test_role_that_spans_hosts_takes_rank_and_leader_from_its_group() -> None:
    decode = next(
        d for d in documents(SPANNING) if d["kind"] == "LeaderWorkerSet" and d["metadata"]["name"] == "decode"
    )
    for template in templates(decode):
        container = template["spec"]["containers"][0]
        variables = {v["name"]: v for v in container["env"]}
        assert variables["NODE_RANK"]["valueFrom"]["fieldRef"]["fieldPath"].endswith(
            "['leaderworkerset.sigs.k8s.io/worker-index']"
        )
        assert variables["DIST_INIT_ADDR"]["value"].startswith("$(LWS_LEADER_ADDRESS):")
        assert container["resources"]["limits"] == {"nvidia.com/gpu": "4"}


def test_compose_and_manifests_give_the_services_the_same_settings() -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    settings = {key.upper() for key in Deployment().environment()}
    mentioned = {key.lower() for key in set(re.findall(r"^\s+([A-Z0-9_]+): \$\{", text, re.MULTILINE)) & settings}
    # Two hosts and several GPUs of one host are compose's own business; images are built, not run.
    own = {
        "host_ip",
        "node_rank",
        "dist_init_addr",
        "prefill_first_gpu",
        "decode_first_gpu",
        "prefill_urls",
        "decode_urls",
    }
    built = {"python_image", "sglang_image", "cuda_arch"}
    given = {*ENGINE_KEYS, *ROLE_KEYS["prefill"], *ROLE_KEYS["decode"], *ROUTER_KEYS}
    assert mentioned - own - built == given


def test_gpus_of_a_pod_follow_the_role_and_its_hosts() -> None:
    for settings, count in (
        (Deployment(decode_tp=2, decode_first_gpu=6), "2"),
        (replace(SPANNING, decode_nodes=4), "2"),
    ):
        decode = next(d for d in documents(settings) if d["metadata"]["name"] == "decode" and d["kind"] != "Service")
        assert templates(decode)[0]["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": count}
