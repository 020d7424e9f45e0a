"""The variable by which SGLang selects its attention path on sm_120, and what it takes."""

from __future__ import annotations

SELECTOR = "SGLANG_SM120_FLASHMLA_BACKEND"
SELECTORS = ("triton", "flashinfer", "flashmla")
# Read by SGLang 0.5.14 and older; set today it changes nothing, which is worse than an error.
STALE_SELECTOR = "SGLANG_SM120_TRITON_FLASHMLA"
