"""Kubernetes manifests from the same settings as compose: a kustomize base, and one overlay for each variant.

A role on one host is a StatefulSet, so that the router can name each of its workers; a role that spans hosts is a
LeaderWorkerSet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from app.container.caches import VOLUME
from app.container.serve import MODEL
from app.kernel.selector import SELECTOR
from app.kernel.variant import Variant
from app.records import write_text
from app.settings import NCCL_KEYS, Deployment

FOLDER = Path("deploy") / "kubernetes"
USER = 10001
RENDEZVOUS_PORT = 20000
SHARED_KEYS = (
    "sglang_release",
    "served_model_name",
    "prefill_port",
    "decode_port",
    "bootstrap_port",
    "start_timeout_s",
)
ENGINE_KEYS = (*SHARED_KEYS, "transfer_backend", "ib_device", "mem_fraction_static", *NCCL_KEYS)
ROLE_KEYS = {
    "prefill": ("prefill_tp", "prefill_nodes", "prefill_extra_args"),
    "decode": ("decode_tp", "decode_nodes", "decode_extra_args", "max_running_requests"),
}
ROUTER_KEYS = (*SHARED_KEYS, "router_port", "health_interval_s", "router_metrics_host")
_LWS = "leaderworkerset.x-k8s.io/v1"
_WORKER_INDEX = "metadata.labels['leaderworkerset.sigs.k8s.io/worker-index']"
Manifest = dict[str, Any]


def render(settings: Deployment, variants: Iterable[Variant]) -> dict[str, str]:
    """Every file by its path under the folder."""
    base = {"prefill.yaml": _engine("prefill", settings), "decode.yaml": _engine("decode", settings)}
    base |= {"router.yaml": [*_router(settings)], "network.yaml": _network(settings)}
    files = {f"base/{name}": _text(*documents) for name, documents in base.items()}
    files["base/kustomization.yaml"] = _text(_kustomization(resources=sorted(base)))
    for variant in variants:
        files[f"overlays/{variant.name}/kustomization.yaml"] = _text(_overlay(settings, variant))
    return files


def write_manifests(settings: Deployment, variants: Iterable[Variant], folder: Path = FOLDER) -> list[Path]:
    """Writes the manifests and returns their paths."""
    files = render(settings, variants)
    for name, text in files.items():
        write_text(folder / name, text)
    return [folder / name for name in files]


def workers(settings: Deployment, role: str) -> list[str]:
    """URLs of a role's workers: as many as the settings list, by the names that their pods have here."""
    count = len(getattr(settings, f"{role}_urls").split(","))
    return [f"http://{role}-{i}.{role}:{getattr(settings, f'{role}_port')}" for i in range(count)]


def _engine(role: str, settings: Deployment) -> list[Manifest]:
    labels, replicas = {"app": role}, len(workers(settings, role))
    nodes = getattr(settings, f"{role}_nodes")
    if nodes > 1:
        leader, worker = (_pod(role, settings, labels, probed=probed) for probed in (True, False))
        template = {"size": nodes, "restartPolicy": "RecreateGroupOnPodRestart"}
        template |= {"leaderTemplate": leader, "workerTemplate": worker}
        spec = {"replicas": replicas, "leaderWorkerTemplate": template}
        # It makes the headless service of its own name.
        return [{"apiVersion": _LWS, "kind": "LeaderWorkerSet", "metadata": {"name": role}, "spec": spec}]
    spec = {"serviceName": role, "replicas": replicas, "selector": {"matchLabels": labels}}
    spec |= {"podManagementPolicy": "Parallel", "template": _pod(role, settings, labels, probed=True)}
    stateful = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": role}, "spec": spec}
    ports = {"http": getattr(settings, f"{role}_port")}
    ports |= {"bootstrap": settings.bootstrap_port} if role == "prefill" else {}
    return [stateful, _service(role, ports, headless=True)]


def _pod(role: str, settings: Deployment, labels: Mapping[str, str], *, probed: bool) -> Manifest:
    port, nodes = getattr(settings, f"{role}_port"), getattr(settings, f"{role}_nodes")
    container = _container(role, f"{settings.image_repository}-{role}", [role], port)
    container["env"] = _environment(settings, (*ENGINE_KEYS, *ROLE_KEYS[role]))
    # A pod sees its own GPUs only, so each role counts from 0.
    container["env"] += [_variable(f"{role.upper()}_FIRST_GPU", "0"), _variable(SELECTOR, _selector(role, settings))]
    if nodes > 1:
        container["env"] += [
            {"name": "NODE_RANK", "valueFrom": {"fieldRef": {"fieldPath": _WORKER_INDEX}}},
            _variable("DIST_INIT_ADDR", f"$(LWS_LEADER_ADDRESS):{RENDEZVOUS_PORT}"),
        ]
    gpus = str(len(settings.gpus(role)))
    container["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
    if probed:
        container |= _probes(port, "/health", settings.start_timeout_s)
    volumes = [
        {"name": "model", "persistentVolumeClaim": {"claimName": "model", "readOnly": True}},
        {"name": "cache", "emptyDir": {}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": settings.shm_size.upper().replace("GB", "Gi")}},
    ]
    mounts = {"model": str(MODEL), "cache": str(VOLUME), "shm": "/dev/shm"}
    container["volumeMounts"] += [
        {"name": name, "mountPath": path, **({"readOnly": True} if name == "model" else {})}
        for name, path in mounts.items()
    ]
    return _template(labels, container, volumes)


def _router(settings: Deployment) -> list[Manifest]:
    container = _container("router", f"{settings.image_repository}-router", ["router"], settings.router_port)
    urls = {f"{role.upper()}_URLS": ",".join(workers(settings, role)) for role in ("prefill", "decode")}
    container["env"] = _environment(settings, ROUTER_KEYS) + [_variable(*pair) for pair in urls.items()]
    container |= _probes(settings.router_port, "/readiness", settings.start_timeout_s)
    labels = {"app": "router"}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": _template(labels, container, [])}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "router"}, "spec": spec}
    return [deployment, _service("router", {"http": settings.router_port})]


def _network(settings: Deployment) -> list[Manifest]:
    """Servers hear each other and the router; the router hears the namespace."""
    inside = [{"podSelector": {"matchLabels": {"app": app}}} for app in ("prefill", "decode", "router")]
    servers = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["prefill", "decode"]}]}
    port = {"port": settings.router_port, "protocol": "TCP"}
    rules = {
        "servers": {"podSelector": servers, "policyTypes": ["Ingress"], "ingress": [{"from": inside}]},
        "router": {
            "podSelector": {"matchLabels": {"app": "router"}},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [{"podSelector": {}}], "ports": [port]}],
        },
    }
    kind = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy"}
    return [{**kind, "metadata": {"name": name}, "spec": spec} for name, spec in rules.items()]


def _overlay(settings: Deployment, variant: Variant) -> Manifest:
    images = {"prefill": settings.prefill_variant, "decode": variant.name}
    spanning = settings.decode_nodes > 1
    at = "/spec/leaderWorkerTemplate/{}/spec" if spanning else "/spec/template/spec"
    places = [at.format(t) for t in ("leaderTemplate", "workerTemplate")] if spanning else [at]
    index = _selector_index(settings)
    patch = [
        {"op": "replace", "path": f"{place}/containers/0/env/{index}/value", "value": variant.selector}
        for place in places
    ]
    target = {"kind": "LeaderWorkerSet" if spanning else "StatefulSet", "name": "decode"}
    return _kustomization(
        resources=["../../base"],
        images=[
            {"name": f"{settings.image_repository}-{role}", "newName": settings.image_repository, "newTag": tag}
            for role, tag in images.items()
        ],
        patches=[{"target": target, "patch": yaml.safe_dump(patch, sort_keys=False)}],
    )


def _selector_index(settings: Deployment) -> int:
    return len(_environment(settings, (*ENGINE_KEYS, *ROLE_KEYS["decode"]))) + 1


def _container(name: str, image: str, arguments: list[str], port: int) -> Manifest:
    return {
        "name": name,
        "image": image,
        "args": arguments,
        "ports": [{"name": "http", "containerPort": port}],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}, {"name": "home", "mountPath": "/home/lab"}],
    }


def _template(labels: Mapping[str, str], container: Manifest, volumes: list[Manifest]) -> Manifest:
    writable: list[Manifest] = [{"name": name, "emptyDir": {}} for name in ("tmp", "home")]
    return {
        "metadata": {"labels": dict(labels)},
        "spec": {
            "automountServiceAccountToken": False,
            # A service named prefill would otherwise set PREFILL_PORT to an address.
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 60,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": USER,
                "runAsGroup": USER,
                "fsGroup": USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
            "volumes": [*writable, *volumes],
        },
    }


def _probes(port: int, path: str, start_timeout_s: int) -> Manifest:
    # SGLang's health answer may take 20 s by design. No liveness probe: a silent restart would spoil a measurement.
    get = {"httpGet": {"path": path, "port": port}, "timeoutSeconds": 30, "periodSeconds": 15}
    return {
        "startupProbe": {**get, "failureThreshold": max(1, start_timeout_s // 15)},
        "readinessProbe": {**get, "failureThreshold": 3},
    }


def _service(name: str, ports: Mapping[str, int], *, headless: bool = False) -> Manifest:
    spec: Manifest = {"selector": {"app": name}, "ports": [{"name": n, "port": p} for n, p in ports.items()]}
    if headless:
        # Published before they are ready: decode asks prefill's bootstrap server while both still start.
        spec |= {"clusterIP": "None", "publishNotReadyAddresses": True}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def _selector(role: str, settings: Deployment) -> str:
    return settings.prefill_selector if role == "prefill" else settings.decode_selector


def _environment(settings: Deployment, keys: Iterable[str]) -> list[Manifest]:
    values = settings.environment()
    return [_variable(key.upper(), values[key.upper()]) for key in keys]


def _variable(name: str, value: str) -> Manifest:
    return {"name": name, "value": value}


def _kustomization(**fields: Any) -> Manifest:
    return {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", **fields}


def _text(*documents: Manifest) -> str:
    return yaml.safe_dump_all(documents, sort_keys=False)
