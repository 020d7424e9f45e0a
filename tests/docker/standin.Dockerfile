# Stands in for the published SGLang image where none can be pulled: the pinned wheel without its dependencies, and the
# exact Triton of that release. No CUDA, no torch: nothing can be launched in it.
ARG PYTHON_IMAGE
FROM ${PYTHON_IMAGE}
ENV PATH=/opt/venv/bin:$PATH
COPY requirements/sglang-0.5.17.lock tests/docker/standin.lock /opt/
# SGLang's thousands of files are looked at, never imported.
RUN python3 -m venv /opt/venv \
 && pip install --no-cache-dir --no-deps --no-compile --require-hashes --disable-pip-version-check -q \
    -r /opt/sglang-0.5.17.lock \
 && pip install --no-cache-dir --no-deps --require-hashes --disable-pip-version-check -q -r /opt/standin.lock
