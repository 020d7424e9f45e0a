# A base for the sglang target from the pinned wheel on plain CUDA, in place of the published image:
#   docker build -f deploy/sglang-wheel.Dockerfile -t sglang-wheel:0.5.17 .
#   docker build --target sglang --build-arg SGLANG_IMAGE=sglang-wheel:0.5.17 --build-arg VARIANT=v2 -t decode-ab:v2 .
# The devel image, since SGLang and FlashInfer compile kernels at run time (ai-dynamo/dynamo#2301).
ARG CUDA_IMAGE=nvidia/cuda:13.0.2-devel-ubuntu24.04@sha256:5dc1bca23d05bd37b011be68ec470c03b403a5da07ec3a86e41af9470e9d0cc6
FROM ${CUDA_IMAGE}
RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
    python3 python3-venv python3-dev build-essential libnuma1 ibverbs-providers && rm -rf /var/lib/apt/lists/*
ENV PATH=/opt/venv/bin:$PATH
COPY requirements/sglang-0.5.17.lock requirements/transfer-cuda13.txt /opt/
# The wheel by hash; what it depends on by the versions it pins itself. Transfer libraries are no dependency of it.
RUN python3 -m venv /opt/venv \
 && pip install --no-cache-dir --disable-pip-version-check -q --no-deps --require-hashes -r /opt/sglang-0.5.17.lock \
 && pip install --no-cache-dir --disable-pip-version-check -q sglang==0.5.17 -r /opt/transfer-cuda13.txt
