"""The model's folder: there, whole, of a shape that the kernels serve, and small enough for the cards."""

from __future__ import annotations

import json
from pathlib import Path

from app.doctor.cards import NO_CARDS, cards
from app.doctor.finding import Finding, fail, ok, skipped
from app.doctor.host import GIB, Host
from kernels.geometry import GeometryError, read_geometry

TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json")
INDEX = "model.safetensors.index.json"
# What git-lfs leaves in place of a file that was not fetched is shorter than this.
POINTER_BYTES = 1024
# Above this share of a card nothing is left for KV, CUDA graphs and activations.
WEIGHTS_SHARE = 0.9
NO_MODEL = skipped("the model is not whole", "mend the line model first")


def folder(host: Host) -> Finding:
    """Configuration, tokenizer and every weight file."""
    path = Path(host.settings.model_path)
    if not path.is_dir():
        return fail(f"no folder {path}", "set MODEL_PATH in .env to the model's folder on this host")
    if lacking := missing(path):
        more = f" and {len(lacking) - 3} more" if len(lacking) > 3 else ""
        return fail(
            f"{path} lacks {', '.join(lacking[:3])}{more}", "fetch the model again; git lfs pull, if from a clone"
        )
    return ok(f"{path}: {len(shards(path))} weight files, {weight_bytes(path) / GIB:.0f} GiB")


def geometry(host: Host) -> Finding:
    """What each role's kernels are launched with."""
    path, s = Path(host.settings.model_path), host.settings
    if not (path / "config.json").is_file():
        return NO_MODEL
    try:
        decode, prefill = read_geometry(path, s.decode_tp), read_geometry(path, s.prefill_tp)
    except GeometryError as e:
        return fail(
            str(e), "serve a model of DeepSeek-V4's attention, with PREFILL_TP and DECODE_TP that divide its heads"
        )
    return ok(f"decode {decode}" + ("; prefill the same" if prefill == decode else f"; prefill {prefill}"))


def weights(host: Host) -> Finding:
    """Each role's share of the weights against the smallest card."""
    path, s = Path(host.settings.model_path), host.settings
    if not path.is_dir() or missing(path):
        return NO_MODEL
    # Where memory is shared with the CPU, nvidia-smi tells no size.
    if not (sizes := [card.memory_mib for card in cards(host) if card.memory_mib]):
        return NO_CARDS
    tp = min(s.prefill_tp, s.decode_tp)
    share_gib, card_gib = weight_bytes(path) / tp / GIB, min(sizes) / 1024
    text = f"{share_gib:.0f} GiB of weights a card at TP {tp}, cards of {card_gib:.0f} GiB"
    if share_gib > WEIGHTS_SHARE * card_gib:
        return fail(text, "raise PREFILL_TP and DECODE_TP, or serve a smaller quantisation")
    return ok(text)


def missing(path: Path) -> list[str]:
    """Names of files that a whole model folder has and this one has not, or only as a pointer."""
    lacking = [name for name in ("config.json", *listed(path)) if not (path / name).is_file()]
    if not any((path / name).is_file() for name in TOKENIZERS):
        lacking.append("a tokenizer")
    if not shards(path):
        lacking.append("weights (*.safetensors)")
    return lacking + [f"{shard.name} (a pointer)" for shard in shards(path) if shard.stat().st_size < POINTER_BYTES]


def listed(path: Path) -> list[str]:
    """Weight files that the model's index names; none without an index."""
    try:
        names = json.loads((path / INDEX).read_text(encoding="utf-8"))["weight_map"].values()
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return [f"a readable {INDEX}"]
    return sorted(set(names))


def shards(path: Path) -> list[Path]:
    """Weight files that are there."""
    return sorted(path.glob("*.safetensors"))


def weight_bytes(path: Path) -> int:
    """Size of all weights on disk."""
    return sum(shard.stat().st_size for shard in shards(path))
