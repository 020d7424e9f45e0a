"""Triton's compile results for a variant, made at build so that the first request compiles nothing."""

from __future__ import annotations

from collections.abc import Mapping

from app.patch import PatchedKernel

# Bytes by path inside Triton's cache folder.
Prebuilt = Mapping[str, bytes]


def prebuild(patched: PatchedKernel, arch: int) -> Prebuilt:
    """Cache entries of every config that the launch may ask for."""
    return {}
