"""Briefs: written, frozen, started and ended by engineers. Nothing here decides: owners sign on the page alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from django.http import FileResponse, Http404, HttpRequest, HttpResponse
from ninja import Router, Schema
from pydantic import Field

from decisions.api.auth import access, account_of
from decisions.api.keys import Number, Reason, Source
from decisions.api.once import Key, once
from decisions.api.paging import Page, Paging, page_of
from decisions.api.problems import BadSource
from decisions.models import BriefRevision, Route
from decisions.pages.bundles import bundle_answer
from decisions.rules.brief import BadBrief, read_brief
from decisions.rules.tokens import SUBMIT
from decisions.rules.who_may import may_read_ledger, may_start, may_write_brief
from decisions.selectors import briefs as selectors
from decisions.selectors.progress import Progress, campaigns_of, progress_of
from decisions.services.cancel_brief import cancel_brief
from decisions.services.create_brief import create_brief
from decisions.services.edit_brief import edit_brief
from decisions.services.freeze_brief import freeze_brief
from decisions.services.resume_brief import resume_brief
from decisions.services.revise_brief import revise_brief
from decisions.services.start_brief import start_brief
from decisions.services.withdraw_brief import withdraw_brief

router = Router(tags=["briefs"])
REVISION = "/{brief}/revisions/{number}"
WRITING, STARTING = access(SUBMIT, may_write_brief), access(SUBMIT, may_start)


class BriefOut(Schema):
    id: int
    title: str
    service: str
    route: str
    revision: int
    state: str
    verdict: str | None
    created_at: datetime


class RevisionOut(Schema):
    brief: int
    revision: int
    title: str
    service: str
    route: str
    state: str
    halted: str
    author: str
    source: str
    digest: str
    traffic_set: int | None
    nominee: str
    created_at: datetime
    frozen_at: datetime | None


class StageOut(Schema):
    name: str
    state: str
    done: int
    total: int
    repeated: int
    seconds_left: float


class ProgressOut(Schema):
    """How far the stages are, and what failed; never how fast anything was."""

    brief: int
    revision: int
    state: str
    halted: str
    nominee: str
    verdict: str | None = Field(description="PASS, FAIL, INCONCLUSIVE or INVALID.")
    stages: list[StageOut]
    seconds_left: float
    engine_minutes: float
    budget_engine_minutes: float | None


class VerdictOut(Schema):
    result: str
    sentence: str
    digest: str
    evidence_digest: str
    created_at: datetime
    document: dict[str, Any]


class NewBrief(Schema):
    source: Source


class Because(Schema):
    reason: Reason = ""


# Reading


def brief_shown(found: Any) -> BriefOut:
    """``found`` is a Brief with the annotations of ``selectors.briefs``."""
    return BriefOut(
        id=found.pk,
        title=found.title,
        service=found.route.service.slug,
        route=found.route.slug,
        revision=found.number,
        state=found.state,
        verdict=found.result,
        created_at=found.created_at,
    )


def revision_shown(revision: BriefRevision) -> RevisionOut:
    return RevisionOut(
        brief=revision.brief_id,
        revision=revision.number,
        title=revision.title,
        service=revision.brief.route.service.slug,
        route=revision.brief.route.slug,
        state=revision.state,
        halted=revision.halted,
        author=revision.author.username,
        source=revision.source,
        digest=revision.digest,
        traffic_set=revision.traffic_set_id,
        nominee=revision.nominee,
        created_at=revision.created_at,
        frozen_at=revision.frozen_at,
    )


def revision_or_404(brief: int, number: int) -> BriefRevision:
    found = selectors.revision_for_page().filter(brief=brief, number=number).first()
    if found is None:
        raise Http404("there is no such revision of a brief")
    return found


@router.get("", response=Page[BriefOut], summary="Briefs with their latest revision", **access())
def list_briefs(request: HttpRequest, asked: Paging, route: str = "", state: str = "") -> object:
    wanted = selectors.briefs()
    wanted = wanted.filter(route__slug=route) if route else wanted
    if state:
        wanted = wanted.filter(state=state)  # type: ignore[misc] # an annotation of the selector
    return page_of(wanted, asked, brief_shown)


@router.get("/{brief}", response=BriefOut, summary="One brief", **access())
def read_brief_row(request: HttpRequest, brief: Number) -> BriefOut:
    found = selectors.briefs().filter(pk=brief).first()
    if found is None:
        raise Http404("there is no such brief")
    return brief_shown(found)


@router.get(REVISION, response=RevisionOut, summary="A revision, as it was written", **access())
def read_revision(request: HttpRequest, brief: Number, number: Number) -> RevisionOut:
    return revision_shown(revision_or_404(brief, number))


@router.get(REVISION + "/progress", response=ProgressOut, summary="How far its stages are", **access())
def read_progress(request: HttpRequest, brief: Number, number: Number) -> ProgressOut:
    revision = revision_or_404(brief, number)
    found, verdict = progress_or_none(revision), revision.verdicts.last()
    return ProgressOut(
        brief=revision.brief_id,
        revision=revision.number,
        state=revision.state,
        halted=revision.halted,
        nominee=revision.nominee,
        verdict=verdict.result if verdict else None,
        stages=stages_shown(found) if found else [],
        seconds_left=found.seconds_left if found else 0.0,
        engine_minutes=found.engine_minutes if found else 0.0,
        budget_engine_minutes=found.budget if found else None,
    )


def progress_or_none(revision: BriefRevision) -> Progress | None:
    """None before anything was measured."""
    campaigns = campaigns_of(revision)
    if not campaigns and revision.state != "measuring":
        return None
    return progress_of(revision, revision.document, campaigns)


def stages_shown(progress: Progress) -> list[StageOut]:
    return [
        StageOut(
            name=one.name,
            state=one.state,
            done=one.done,
            total=one.total,
            repeated=one.repeated,
            seconds_left=one.seconds_left,
        )
        for one in progress.stages
    ]


@router.get(REVISION + "/verdict", response=VerdictOut, summary="Its verdict, once there is one", **access())
def read_verdict(request: HttpRequest, brief: Number, number: Number) -> VerdictOut:
    """``document`` in RFC 8785 form gives ``digest``."""
    verdict = revision_or_404(brief, number).verdicts.last()
    if verdict is None:
        raise Http404("there is no verdict yet: progress says how far it is")
    return VerdictOut(
        result=verdict.result,
        sentence=verdict.sentence,
        digest=verdict.digest,
        evidence_digest=verdict.evidence_digest,
        created_at=verdict.created_at,
        document=verdict.document,
    )


# Writing


@contextmanager
def problems_in(source: str) -> Iterator[None]:
    """A brief's problems with the lines of these words."""
    try:
        yield
    except BadBrief as error:
        raise BadSource(error, source) from None


def route_named(source: str) -> Route:
    name = read_brief(source).route
    route = Route.objects.select_related("service").filter(slug=name).first()
    if route is None:
        raise BadBrief([f"route: there is no route {name}"])
    return route


@router.post("", response={201: RevisionOut}, summary="Keep a new brief as a draft", **WRITING)
def create(request: HttpRequest, body: NewBrief, key: Key = None) -> HttpResponse:
    """It is for the route that it names."""

    def act() -> RevisionOut:
        with problems_in(body.source):
            route = route_named(body.source)
            return revision_shown(create_brief(route=route, source=body.source, by=account_of(request)))

    return once(request, key, act, status=201)


@router.put(REVISION, response=RevisionOut, summary="Change the words of a draft", **WRITING)
def edit(request: HttpRequest, brief: Number, number: Number, body: NewBrief) -> RevisionOut:
    revision = revision_or_404(brief, number)
    with problems_in(body.source):
        edit_brief(revision=revision, source=body.source, by=account_of(request))
    return revision_shown(revision_or_404(brief, number))


def acted(
    request: HttpRequest, brief: int, number: int, key: str | None, service: Callable[..., Any], **more: str
) -> HttpResponse:
    """Answers with the revision that the act was done on, or made."""
    revision = revision_or_404(brief, number)

    def act() -> RevisionOut:
        with problems_in(revision.source):
            made = service(revision=revision, by=account_of(request), **more)
        number = made.number if isinstance(made, BriefRevision) else revision.number
        return revision_shown(revision_or_404(revision.brief_id, number))

    return once(request, key, act)


@router.post(REVISION + "/freeze", response=RevisionOut, summary="Store its bytes and digest", **WRITING)
def freeze(request: HttpRequest, brief: Number, number: Number, key: Key = None) -> HttpResponse:
    """From here on a change is a new revision."""
    return acted(request, brief, number, key, freeze_brief)


@router.post(REVISION + "/start", response=RevisionOut, summary="Start its stages", **STARTING)
def start(request: HttpRequest, brief: Number, number: Number, key: Key = None) -> HttpResponse:
    """They follow each other by themselves until the verdict waits."""
    return acted(request, brief, number, key, start_brief)


@router.post(REVISION + "/resume", response=RevisionOut, summary="Go on after a stop", **STARTING)
def resume(request: HttpRequest, brief: Number, number: Number, key: Key = None) -> HttpResponse:
    return acted(request, brief, number, key, resume_brief)


@router.post(REVISION + "/revise", response=RevisionOut, summary="Begin the next revision with its words", **WRITING)
def revise(request: HttpRequest, brief: Number, number: Number, key: Key = None) -> HttpResponse:
    """Answers with the new draft."""
    return acted(request, brief, number, key, revise_brief)


@router.post(REVISION + "/cancel", response=RevisionOut, summary="End what runs for it", **STARTING)
def cancel(request: HttpRequest, brief: Number, number: Number, body: Because, key: Key = None) -> HttpResponse:
    """Its evidence stays, its verdict will never come."""
    return acted(request, brief, number, key, cancel_brief, reason=body.reason.strip())


@router.post(REVISION + "/withdraw", response=RevisionOut, summary="Take it back before it is decided on", **WRITING)
def withdraw(request: HttpRequest, brief: Number, number: Number, body: Because, key: Key = None) -> HttpResponse:
    return acted(request, brief, number, key, withdraw_brief, reason=body.reason.strip())


@router.post(
    REVISION + "/bundle",
    summary="The bundle of its decision, a zip",
    openapi_extra={"responses": {200: {"content": {"application/zip": {"schema": {"type": "string"}}}}}},
    **access(rule=may_read_ledger),
)
def bundle(request: HttpRequest, brief: Number, number: Number) -> FileResponse:
    """It is made anew each time, and verified. Making it may sign a checkpoint of the history, hence no GET."""
    return bundle_answer(revision_or_404(brief, number))
