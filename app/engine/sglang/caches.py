"""Where the compilers under SGLang keep their results: one folder each, of one root."""

from __future__ import annotations

# Every variable that moves a cache which SGLang's stack would else put into HOME or a temporary folder.
VARIABLES = {
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "CUDA_CACHE_PATH": "cuda",
    "TILELANG_CACHE_DIR": "tilelang",
    "FLASHINFER_WORKSPACE_BASE": "flashinfer",
    "TVM_FFI_CACHE_DIR": "tvm-ffi",
    "SGLANG_DG_CACHE_DIR": "deep-gemm",
    "SGLANG_CACHE_DIR": "sglang",
    "XDG_CACHE_HOME": "xdg",
}
