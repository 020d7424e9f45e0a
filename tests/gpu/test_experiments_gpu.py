from __future__ import annotations

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("no CUDA GPU", allow_module_level=True)

from kernels.bench_providers import Provider
from kernels.experiments import PLAN, contenders, faults_of

pytestmark = pytest.mark.gpu

CONTENDERS = {(e, p.name): p for e in ("d", "e") for case in PLAN[e] for p in contenders(e, case)}


@pytest.mark.parametrize(("experiment", "provider"), [(e, p) for (e, _), p in CONTENDERS.items()], ids=str)
def test_schedule_agrees_with_float64_and_repeats_bit_for_bit(experiment: str, provider: Provider) -> None:
    assert faults_of(experiment, provider) == []
