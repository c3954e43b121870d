"""The health of a brief's measurements: what they can show, and every validity check with its own numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from decisions.models import Verdict
from decisions.pages.access import require
from decisions.pages.brief_tabs import frame, revision_or_404
from decisions.pages.gates import REMEDIES
from decisions.rules.health import Basis, boots_named
from decisions.rules.power import looks_taken, powers
from decisions.rules.saturation import saturated_cells
from decisions.rules.wording import share
from decisions.selectors.health import basis_of, floor_of
from decisions.selectors.verdict_pictures import power_chart

# check → what it asks, in the order of a verdict's own rows
ASKS = {
    "issued": "Was every planned request issued?",
    "client-lag": "Did the client keep its times?",
    "fingerprint": "Did the planned configuration answer?",
    "warm-up": "Was warm-up completed and left out?",
    "engine-tokens": "Does the engine count the tokens that we got?",
    "neighbours": "Was the machine left to the engine?",
    "same-requests": "Did both arms get the same requests?",
    "fresh-server": "Had each arm a fresh server?",
    "arm-order": "Did the arms run in the order drawn?",
    "control": "Does the baseline equal itself?",
    "output-length": "Are the answers as long in both arms?",
    "prefix-cache": "Did the prefix cache favour neither arm?",
    "pairs": "Are the planned pairs complete?",
}
STATES = {True: "passed", False: "failed", None: "not judged"}
# Within these the figure may lie on either side of zero; of a p-value more is better.
BOTH_SIDES = ("output-length", "prefix-cache")
MOST_LINES = 200
TRIAL_NAMED = re.compile(r"\btrial (\w+)(?= \()")


@dataclass(frozen=True)
class Part:
    """A piece of a sentence; with a boot it is a link to the trial there."""

    words: str
    boot: str = ""
    trial: str = ""


@dataclass(frozen=True)
class CheckRow:
    id: str
    asks: str
    state: str
    sentence: list[Part]
    figure: str
    limit: str
    remedy: str
    basis: Basis | None
    left_out: int


def check_row(check: Mapping[str, Any], bases: Mapping[str, Basis], boots: Mapping[str, str]) -> CheckRow:
    basis = bases.get(check["id"])
    shown = Basis(basis.headers, basis.lines[:MOST_LINES]) if basis and basis.lines else None
    return CheckRow(
        id=check["id"],
        asks=ASKS.get(check["id"], check["id"]),
        state=STATES[check["ok"]],
        sentence=linked(check["sentence"], boots),
        figure="not known" if check["number"] is None else figure(check["number"], check["unit"]),
        limit=limit_words(check),
        remedy=REMEDIES.get(check["id"], "") if check["ok"] is False else "",
        basis=shown,
        left_out=max(0, len(basis.lines) - MOST_LINES) if basis else 0,
    )


def figure(number: float, unit: str) -> str:
    if unit == "share":
        return share(number).replace("-", "−")
    if unit == "p-value":
        return f"p {number:.3g}"
    return f"{number:.1f} ms" if unit == "ms" else f"{number:,.0f} {unit}".replace("-", "−")


def limit_words(check: Mapping[str, Any]) -> str:
    limit, unit = check["limit"], check["unit"]
    if limit is None:
        return ""
    if check["id"] in BOTH_SIDES:
        return f"within ±{share(limit)}"
    if check["id"] == "control":
        return f"above p {limit:g}"
    if check["id"] == "pairs":
        return f"all {limit:g} pairs"
    return "none" if limit == 0 else f"at most {figure(limit, unit)}"


def linked(sentence: str, boots: Mapping[str, str]) -> list[Part]:
    """The sentence with each trial that it names as a link to it, where its boot is known."""
    parts, start = [], 0
    for found in TRIAL_NAMED.finditer(sentence):
        boot = boots.get(found[1])
        if boot is not None:
            parts += [Part(sentence[start : found.start()]), Part(found[0], boot, found[1])]
            start = found.end()
    return [*parts, Part(sentence[start:])]


def check_rows(verdict: Verdict) -> tuple[list[CheckRow], str]:
    bases, missing = basis_of(verdict)
    boots = boots_named(bases)
    order = {False: 0, None: 1, True: 2}
    checks: Sequence[Mapping[str, Any]] = sorted(verdict.document["validity"], key=lambda one: order[one["ok"]])
    return [check_row(check, bases, boots) for check in checks], missing


def summary(checks: Sequence[CheckRow]) -> list[tuple[str, int]]:
    return [(state, sum(check.state == state for check in checks)) for state in ("passed", "failed", "not judged")]


@require_safe
@login_required
def health(request: HttpRequest, brief: int, number: int) -> HttpResponse:
    account = require(request)
    revision = revision_or_404(brief, number)
    context = frame(revision, "brief-health", account)
    document, verdict = context["document"], revision.verdicts.last()
    checks, missing = check_rows(verdict) if verdict else ([], "")
    floor, floor_missing = floor_of(revision, verdict) if document else (None, "")
    context |= {
        "verdict": verdict,
        "checks": checks,
        "summary": [one for one in summary(checks) if one[1]],
        "missing": missing,
        "asked": list(ASKS.values()),
        "powers": [(one, power_chart(one)) for one in powers(document, floor)] if floor else [],
        "floor": floor,
        "saturated": saturated_cells(verdict.document) if verdict else (floor or {}).get("saturated", []),
        "floor_missing": floor_missing,
        "looks": looks_taken(document, verdict.document if verdict else None, context["taken"]) if document else [],
    }
    return render(request, "briefs/health.html", context)
