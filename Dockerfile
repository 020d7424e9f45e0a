# Targets: router, loadtest, sim (no GPU, timing SIMULATED) and sglang (the sm_120 image). Every variant of a target
# shares all layers but the last. The stages of sglang stand last because the classic builder builds every stage up to
# its target, wanted or not.
#
#   docker build --target sglang --build-arg VARIANT=v2 -t decode-ab:v2 .
ARG PYTHON_IMAGE=python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b
ARG SGLANG_IMAGE=lmsysorg/sglang:v0.5.17@sha256:16aba8925507e631e1dc1e23d95d026533602591775f6a8db68b74ee99746155

# The lab's own environment, shared by router, loadtest and sim.
FROM ${PYTHON_IMAGE} AS lab
ENV PATH=/opt/venv/bin:$PATH PYTHONPATH=/opt/lab PYTHONUNBUFFERED=1 HOME=/home/lab
RUN echo 'lab:x:10001:10001::/home/lab:/usr/sbin/nologin' >> /etc/passwd && echo 'lab:x:10001:' >> /etc/group \
 && mkdir -p /home/lab /cache && chown 10001:10001 /home/lab /cache
COPY requirements/base.lock /opt/lab/requirements/
RUN python3 -m venv /opt/venv \
 && pip install --no-cache-dir --require-hashes --disable-pip-version-check -q -r /opt/lab/requirements/base.lock
WORKDIR /opt/lab

FROM lab AS service
COPY app /opt/lab/app
# A read-only container cannot keep bytecode, so it is made here; hash-checked, since file times are not fixed.
RUN python3 -m compileall -q --invalidation-mode checked-hash /opt/lab/app

FROM service AS router
USER 10001:10001
EXPOSE 8000
ENTRYPOINT ["python3", "-m", "app.container"]
CMD ["router"]

FROM service AS loadtest
COPY loadtest /opt/lab/loadtest
RUN python3 -m compileall -q --invalidation-mode checked-hash /opt/lab/loadtest
# Inside the container; compose publishes the page on the host's loopback.
ENV LOCUST_WEB_HOST=0.0.0.0
USER 10001:10001
EXPOSE 8089
ENTRYPOINT ["locust", "-f", "/opt/lab/loadtest/locustfile.py"]

# The simulated engine reads its timing out of the kernel file, so it carries SGLang's files, without what they need.
FROM lab AS sim-base
COPY requirements/sglang-0.5.17.lock /opt/lab/requirements/
RUN pip install --no-cache-dir --no-deps --no-compile --require-hashes --disable-pip-version-check -q \
    -r /opt/lab/requirements/sglang-0.5.17.lock
COPY app /opt/lab/app
RUN python3 -m compileall -q --invalidation-mode checked-hash /opt/lab/app
EXPOSE 30000 30001 8998
ENTRYPOINT ["python3", "-m", "app.container"]
CMD ["decode"]

FROM sim-base AS sim-patch
COPY kernels /opt/lab/kernels
ARG VARIANT=pinned
RUN python3 -m app.container bake --engine sim --release 0.5.17 --arch 120 --variant "$VARIANT" --out /out

FROM sim-base AS sim
USER 10001:10001
COPY --from=sim-patch /out/ /
RUN ["python3", "-B", "-m", "app.container", "check"]
ARG VARIANT=pinned
LABEL io.decode-ab.variant=$VARIANT io.decode-ab.engine=sim

# The image that serves: SGLang as published, or any base that holds a pinned release (deploy/sglang-wheel.Dockerfile).
FROM ${SGLANG_IMAGE} AS sglang-base
USER root
ENV PYTHONPATH=/opt/lab PYTHONUNBUFFERED=1 HOME=/home/lab
RUN echo 'lab:x:10001:10001::/home/lab:/usr/sbin/nologin' >> /etc/passwd && echo 'lab:x:10001:' >> /etc/group \
 && mkdir -p /home/lab /cache && chown 10001:10001 /home/lab /cache
COPY app /opt/lab/app
RUN python3 -m compileall -q --invalidation-mode checked-hash /opt/lab/app
WORKDIR /opt/lab
EXPOSE 30000 30001 8998
ENTRYPOINT ["python3", "-m", "app.container"]
CMD ["decode"]

# The gate runs here, with the Triton that ships: another version's resource figures would prove nothing.
FROM sglang-base AS sglang-patch
COPY requirements/patch.lock /opt/lab/requirements/
RUN python3 -m pip install --no-cache-dir --no-deps --require-hashes --disable-pip-version-check -q \
    --target /opt/lab/patching -r /opt/lab/requirements/patch.lock
COPY kernels /opt/lab/kernels
ARG SGLANG_RELEASE=0.5.17
ARG CUDA_ARCH=120
ARG VARIANT=pinned
RUN PYTHONPATH=/opt/lab:/opt/lab/patching python3 -m app.container bake --engine sglang --release "$SGLANG_RELEASE" \
    --arch "$CUDA_ARCH" --variant "$VARIANT" --out /out

FROM sglang-base AS sglang
USER 10001:10001
COPY --from=sglang-patch /out/ /
RUN ["python3", "-B", "-m", "app.container", "check"]
ARG VARIANT=pinned
LABEL io.decode-ab.variant=$VARIANT io.decode-ab.engine=sglang
