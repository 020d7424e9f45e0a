"""What the daemon, a registry or a build step says, told as one line with its remedy."""

from __future__ import annotations

import gc

import pytest

from app.errors import BuildError, GateError, LabError, NotReadyError, UsageError
from app.image.daemon import connect, explained, step_fault, told
from app.stack.compose import compose_fault

STEP = "The command '/bin/sh -c python3 -m app.container bake' returned a non-zero code: {}"


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("write /var/lib/docker/tmp/x: no space left on device", "disk is full"),
        ("no matching manifest for linux/arm64/v8 in the manifest list", "has no linux/arm64 build"),
        ("exec /bin/sh: exec format error", "for another platform than the daemon's linux/arm64"),
        ("pull access denied for lmsysorg/sglang, repository does not exist", "docker login"),
        ("unauthorized: authentication required", "docker login"),
        ("toomanyrequests: You have reached your pull rate limit", "rate limit"),
        ("manifest for a/b@sha256:00 not found: manifest unknown", "check its digest"),
        ("dial tcp: lookup registry.invalid: no such host", "is this host offline"),
        ("net/http: TLS handshake timeout", "cannot be reached"),
    ],
)
def test_faults_of_a_build_are_explained(text: str, meaning: str) -> None:
    said = explained(text, "linux/arm64")
    assert meaning in said
    assert text in said


@pytest.mark.parametrize(("code", "kind"), [(2, UsageError), (3, GateError), (5, BuildError)])
def test_a_step_of_the_lab_speaks_for_itself(code: int, kind: type[LabError]) -> None:
    fault = step_fault(STEP.format(code), ["decode-ab: v2 needs more", "Removing intermediate container"], "")
    assert (type(fault), str(fault)) == (kind, "v2 needs more")


def test_another_step_is_told_with_its_last_lines() -> None:
    fault = step_fault("The command 'pip' returned a non-zero code: 1", ["one", "ERROR: no network", "Removing"], "")
    assert isinstance(fault, BuildError)
    assert "ERROR: no network" in str(fault)


def test_a_daemon_that_is_stopping_is_no_fault_of_the_build() -> None:
    assert isinstance(step_fault("failed to update store for object type *libnetwork.endpoint", [], ""), NotReadyError)


# The SDK leaves the socket of a failed connection to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("where", "why"),
    [("unix:///nowhere/docker.sock", "No such file or directory"), ("tcp://127.0.0.1:9", "Connection refused")],
)
def test_no_daemon_is_told_with_its_address_and_why(monkeypatch: pytest.MonkeyPatch, where: str, why: str) -> None:
    monkeypatch.setenv("DOCKER_HOST", where)
    with pytest.raises(NotReadyError, match=rf"no Docker daemon answers at {where}; .* \({why}\)$"):
        connect()
    gc.collect()


def test_a_daemon_that_goes_away_is_told() -> None:
    import requests

    with pytest.raises(NotReadyError, match="building sim: the Docker daemon went away"), told("building sim"):
        raise requests.ConnectionError("aborted")


@pytest.mark.parametrize(
    ("said", "meaning"),
    [
        ("Bind for 127.0.0.1:8000 failed: port is already allocated", "change ROUTER_PUBLISH"),
        ('could not select device driver "nvidia" with capabilities: [[gpu]]', "nvidia-container-toolkit"),
        ("invalid mount config: bind source path does not exist: /models", "MODEL_PATH"),
        ("Error response from daemon: No such image: decode-ab:v2", "invoke build"),
        ("Cannot connect to the Docker daemon at unix:///x", "start it"),
    ],
)
def test_faults_of_compose_are_explained(said: str, meaning: str) -> None:
    assert meaning in compose_fault(f"Container x Creating\n{said}\n")


def test_unknown_fault_of_compose_is_its_last_line() -> None:
    assert compose_fault("one\ntwo\n\n") == "two"
