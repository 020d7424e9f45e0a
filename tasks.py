"""The lab's tasks: parse, call, print. Exit codes are decided here and nowhere else."""

from __future__ import annotations

import functools

from invoke.context import Context

from app import errors
from app.ending import EndingTask, asked, collected, ending_task
from app.lazily import lazily

with lazily("app"):
    from app import bench_client as bench_clients
    from app import environment
    from app.chaos import command as faults
    from app.console import campaigns as console
    from app.console import changes, operations, planning
    from app.doctor import examination
    from app.engine.sglang import travel
    from app.gate import bench, named, profile
    from app.ledger import kernels as kernel_ledger
    from app.project import audit as audits
    from app.project import checks, documentation
    from app.project import release as releases

# A campaign's code is that of its gravest decision, gravest first.
DECISION_CODES = {"invalid": 9, "reject": 7, "undecided": 8, "same-code": 8, "accept": 0}
# The first class that matches counts.
ERROR_CODES: tuple[tuple[type[errors.LabError], int], ...] = (
    (errors.UsageError, 2),
    (errors.GateError, 3),
    (errors.NotReadyError, 4),
    (errors.ProofError, 5),
    (errors.LoadError, 6),
    (errors.InvalidCampaignError, 9),
)
INTERRUPTED = 130
SOUND, FAULTY = 0, 6
lab_task = functools.partial(ending_task, codes=ERROR_CODES, interrupted=INTERRUPTED)


@lab_task
def demo(_: Context, seed: str = "", quiet: bool = False) -> int:
    """A real campaign in small on the simulated engine: baseline, pinned, v1, v2; about four minutes."""
    return gravest(console.show_demo(seed, quiet))


@lab_task
def test(_: Context, select: str = "") -> int:
    """All tests that this machine can run, with lint and types; --select narrows to matching test names."""
    return checks.run_checks(select)


@lab_task
def docs(_: Context, out: str = "site") -> None:
    """Builds the documentation as a site, links checked, and writes docs/reference.md anew."""
    documentation.build_site(ns, (ERROR_CODES, DECISION_CODES, INTERRUPTED), out)


@lab_task
def doctor(_: Context, engine: str = "sim", runtime: str = "", json: bool = False) -> None:
    """Looks now for what would go wrong later, and says in one line each what to do about it."""
    examination.show_doctor(engine, runtime, json)


@lab_task
def variants(_: Context, kernels: bool = False, json: bool = False) -> None:
    """The variants, their controls, what they change and what is predicted of them; --kernels: what they can target."""
    (changes.show_kernels if kernels else changes.show_variants)(json)


@lab_task
def new_variant(_: Context, name: str, from_: str = "pinned") -> None:
    """Writes the file of a new variant, with every field explained, to change a number in."""
    changes.show_new_variant(name, from_)


@lab_task
def diff(_: Context, variant: str, release: str = "", against: str = "") -> None:
    """The unified diff that a variant makes to SGLang's pristine kernel file, or to its control's."""
    changes.show_diff(variant, release, against)


@lab_task
def check(
    _: Context,
    variant: str,
    arch: int = 120,
    triton: str = "",
    model: str = "",
    tp: int = 4,
    stock: bool = False,
    allow_noop: bool = False,
    json: bool = False,
) -> int:
    """The gate: compiles a variant for an arch with no GPU and says what would go wrong."""
    named.require_version(triton)
    environment.ensure("gate")
    return named.run_check(variant, triton, model, allow_noop=allow_noop, as_json=json, arch=arch, tp=tp, stock=stock)


@lab_task
def profile_kernel(
    _: Context, variant: str, trace: str = "", out: str = "", arch: int = 120, batch: int = 96, heads: int = 0
) -> int:
    """Holds the launches in a profiler trace against the gate's prediction; without --trace records one on this GPU."""
    environment.ensure("gate")
    return profile.run_profile(variant, trace=trace, out=out, arch=arch, batch=batch, heads=heads)


@lab_task
def bench_kernel(
    _: Context,
    variants: str = "upstream,baseline,pinned,v1,v2,fast",
    out: str = "runs/bench_kernel.csv",
    flashmla: str = "",
    sweep: bool = False,
) -> None:
    """Times variants' kernels alone on this GPU, beside FlashMLA where its library is named."""
    bench.bench_kernels(variants, out, flashmla, sweep)


@lab_task
def bench_client(_: Context) -> None:
    """Times the load driver beside other clients on one clocked mock and writes the committed table anew."""
    print(bench_clients.bench_clients(print))


@lab_task
def chaos(_: Context, long: bool = False, only: str = "all", out: str = "") -> int:
    """Puts the lab through every kind of fault on real parts and writes the table of docs/faults.md anew."""
    return SOUND if faults.run_chaos(long, only, out) else FAULTY


@lab_task
def audit(_: Context, service: str = "pypi") -> int:
    """Looks every locked package up among known vulnerabilities, by pip-audit; what could not be looked up fails."""
    return SOUND if audits.show_audit(service) else FAULTY


@lab_task
def compare(
    context: Context,
    variants: str = "",
    concurrency: str = "1,8,48,64,80,96",
    blocks: int = 8,
    design: str = "mirrored",
    runtime: str = "local",
    engine: str = "sim",
    time_scale: str = "1",
    lengths: str = "1024,256",
    settle: str = "10",
    window: str = "60",
    decode_only: bool = False,
    delta: str = "0.01",
    slo: str = "",
    seed: str = "",
    id: str = "",
    resume: str = "",
    calibration: str = "",
    model: str = "",
    server: str = "",
    against: str = "",
    import_: str = "",
    quiet: bool = False,
) -> int:
    """Measures variants against their controls and judges them; --resume ID goes on, --import judges others' rows."""
    options = {k: v for k, v in locals().items() if k != "context"}
    return gravest(console.judge(asked(compare, options, context), **options))


@lab_task
def report(
    _: Context, id: str = "latest", slope: str = "", amdahl: str = "", from_rows: bool = False, json: bool = False
) -> None:
    """Judges a campaign again and writes its reports anew.

    --slope 60,90 asks how throughput rises there; --amdahl FILE holds the effect against the kernel's own.
    """
    console.show_campaign(id, slope, amdahl, from_rows, json)


@lab_task
def ledger(_: Context, id: str = "latest", kernels: str = "", json: bool = False) -> None:
    """Enters a campaign (or a kernel benchmark, --kernels) in EXPERIMENTS.md, of runs/ if simulated, and says where."""
    if kernels:
        environment.ensure("gate")
        kernel_ledger.show_entry(kernels, json)
    else:
        console.enter_ledger(id, json)


@lab_task
def plan(
    _: Context,
    effect: str = "2",
    power: str = "0.9",
    campaign: str = "latest",
    sd: str = "",
    concurrency: str = "",
    design: str = "",
    hours: str = "",
    variants: int = 2,
    start_s: int = 60,
    level_s: int = 70,
    json: bool = False,
) -> None:
    """Blocks and hours that find an effect of so many percent, from a campaign's noise or a given sd in percent."""
    pilot = planning.pilot_of(campaign, sd, concurrency, design)
    planning.show_plan(pilot, effect, power, hours, variants, planning.pace(start_s, level_s), json)


@lab_task
def calibrate_verdict(_: Context, campaigns: int = 10_000) -> None:
    """Measures the verdict's own error rates in virtual time and writes the committed table anew."""
    console.calibrate(campaigns)


@lab_task
def build(_: Context, variant: str, engine: str = "sglang", allow_noop: bool = False) -> None:
    """Builds a variant's image: gated, patched, checked by itself, stamped and recorded."""
    environment.ensure("gate")
    operations.show_build(variant, engine, allow_noop)


@lab_task
def images(_: Context, json: bool = False) -> None:
    """The lab's images, what runs them and which is stable."""
    operations.show_images(json)


@lab_task
def up(_: Context, variant: str, engine: str = "sglang", runtime: str = "docker", override: str = "") -> None:
    """Brings prefill, decode, router and the load UI up on a variant, and proves what runs."""
    operations.show_up(variant, engine, runtime, override)


@lab_task
def switch(_: Context, variant: str) -> None:
    """Replaces decode alone by another variant; prefill and router stay."""
    operations.show_switch(variant)


@lab_task
def verify(_: Context, json: bool = False) -> None:
    """Reads from inside the running services which kernel runs, and compares it with their images."""
    operations.show_verify(json)


@lab_task
def promote(_: Context, variant: str, engine: str = "sglang", force: bool = False, reason: str = "") -> None:
    """Makes a variant stable; needs an accepting verdict on the same kernel, or --force with a --reason."""
    operations.show_promote(variant, engine, force, reason)


@lab_task
def rollback(_: Context, engine: str = "sglang") -> None:
    """Makes the previous stable image stable again."""
    operations.show_rollback(engine)


@lab_task
def prepare_gpu(_: Context, bundles: str = "server,lab", out: str = "dist/gpu", caches: str = "") -> None:
    """Makes what must travel to a GPU machine without network, and prints its size."""
    travel.show_preparation(bundles, out, caches)


@lab_task
def pin(_: Context, image: str = "") -> None:
    """Moves a base image's digest wherever it stands; without --image lists the pinned ones."""
    operations.show_pin(image)


@lab_task
def manifests(_: Context, out: str = "deploy/kubernetes") -> None:
    """Renders the Kubernetes manifests anew from the settings and the variants."""
    operations.show_manifests(out)


@lab_task
def down(_: Context) -> None:
    """Ends the stack that was brought up and removes what it left."""
    operations.take_down()


@lab_task
def release(_: Context, version: str, skip_tests: bool = False, dry_run: bool = False) -> None:
    """Checks, tests, builds and tags a release; refuses a tree, version or changelog that is not ready."""
    releases.show_release(version, skip_tests, dry_run)


def gravest(decisions: list[str]) -> int:
    """The exit code of a campaign: that of its gravest decision."""
    return next((code for decision, code in DECISION_CODES.items() if decision in decisions), 0)


# By type and not by isinstance, which would load what is imported lazily.
ns = collected(found for found in tuple(globals().values()) if type(found) is EndingTask)
