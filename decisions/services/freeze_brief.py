from collections.abc import Sequence
from functools import partial

from django.utils import timezone

from decisions.models import Account, BriefRevision, Service
from decisions.rules.brief import BadBrief, Brief, read_brief, refused_brief
from decisions.rules.preflight import refused
from decisions.rules.who_may import may_write_brief
from decisions.selectors.preflight import findings_of_brief
from decisions.selectors.seal import used_before
from decisions.selectors.service_cases import cases_named, versions_of
from decisions.services.create_brief import check_names
from decisions.services.move_revision import move_revision, subject
from decisions.services.people import owners, person
from decisions.services.refuse import refuse
from decisions.services.start_campaign import settings_of
from loadtests.behaviour.registry import suite_plan
from loadtests.evidence.ahead import act_on_evidence
from loadtests.evidence.store import EvidenceDamaged, EvidenceMissing
from loadtests.models import TrafficPart, TrafficSet
from loadtests.part_indexes import index_of
from loadtests.traffic.levels import Level
from loadtests.traffic.plan import check_rows, drawn_counts, segments_of_times

# So many times the rows that are there: refused without drawing the times of millions.
FAR_TOO_MANY = 10
# A race rarely goes on for longer; a round that finds no segments after all halts the brief and says so.
ROUNDS_CHECKED = 12
MOST_VERSIONS_LISTED = 5


def freeze_brief(*, revision: BriefRevision, by: Account) -> None:
    """Stores the brief's exact bytes and digest. From here on a change is a new revision."""
    refusal = may_write_brief(person(by))
    if refusal:
        refuse("brief-freeze", refusal, subject=subject(revision), actor=by.username)
    document = read_brief(revision.source)
    check_names(document, revision.brief.route)
    check_preflight(document)
    traffic_set = check_population(document)
    check_service(document, traffic_set)
    check_usable(document, traffic_set)
    check_classes(document, traffic_set)
    check_enough(document, traffic_set)
    check_cases(document, revision.brief.route.service)
    check_registry(document)
    if document.decision_owner not in owners(revision.brief.route.service):
        raise BadBrief([f"decision_owner: {document.decision_owner} is not an owner of {document.service}"])
    act_on_evidence(partial(move_to_frozen, revision, document, traffic_set, by))


def move_to_frozen(revision: BriefRevision, document: Brief, traffic_set: TrafficSet, by: Account) -> None:
    # Used traffic may be explored again, but can't carry an approval: it is said now, and again at the signature.
    used = [use.document for use in used_before(revision, traffic_set)]
    move_revision(
        revision=revision,
        act="freeze",
        actor=by.username,
        details={"digest": document.digest, "traffic": document.traffic.set, "held_out_used_before": used},
        content=document.content,
        digest=document.digest,
        frozen_at=timezone.now(),
        traffic_set=traffic_set,
    )
    revision.editors.add(by)


def check_preflight(document: Brief) -> None:
    """Reading the brief refused what its words alone tell; this asks the checkpoints of this machine too."""
    findings = refused(findings_of_brief(document))
    if findings:
        raise refused_brief(findings)


def check_population(document: Brief) -> TrafficSet:
    """The traffic set with the very parts that the brief names."""
    traffic_set = TrafficSet.objects.filter(digest=document.traffic.set).first()
    if traffic_set is None:
        raise BadBrief([f"traffic.set: no traffic set has the digest {document.traffic.set}: import it first"])
    parts = dict(traffic_set.parts.values_list("kind", "digest"))
    problems = [
        f"traffic.{field}: the set's {kind} part has the digest {parts.get(kind)}, the brief says {wanted}"
        for field, kind, wanted in (
            ("tuning", "tuning", document.traffic.tuning),
            ("held_out", "held-out", document.traffic.held_out),
        )
        if parts.get(kind) != wanted
    ]
    if problems:
        raise BadBrief(problems)
    return traffic_set


def check_service(document: Brief, traffic_set: TrafficSet) -> None:
    """A service is measured on traffic of its own, under its own redaction and retention."""
    if traffic_set.service == document.service:
        return
    if traffic_set.service:
        problem = (
            f"is of the service {traffic_set.service}, and this brief is for {document.service}: choose a set of "
            f"{document.service}, or import its traffic"
        )
    else:
        problem = f"is of no service: give it to {document.service} on its page, or import the file again for it"
    raise BadBrief([f"traffic.set: {traffic_set.name} {problem}"])


def check_usable(document: Brief, traffic_set: TrafficSet) -> None:
    """Traffic that can't be sent or replayed is refused now, before any engine time. A set that was imported before
    its import said so is taken to have text and times."""
    imported = traffic_set.imported
    problems = []
    if traffic_set.text_deleted_at:
        problems.append(
            f"traffic.set: the text of this set was deleted on {traffic_set.text_deleted_at:%d %B %Y} by "
            f"{traffic_set.text_deleted_by}, so there is nothing to send: import fresh traffic"
        )
    if not imported.get("acceptance", {}).get("usable", True):
        problems.append(
            "traffic.set: this set holds lengths and no text, and how many draft tokens are accepted depends on the "
            "text: import the file again with a donor of real text"
        )
    if imported.get("needs_arrival_process"):
        problems += [
            f"levels.{place}.arrival.process: level {level.name} is a replay, but the times of this traffic were "
            "never recorded: choose another arrival process"
            for place, level in enumerate(document.levels)
            if level.arrival.process == "replay"
        ]
    if problems:
        raise BadBrief(problems)


def check_cases(document: Brief, service: Service) -> None:
    """The suite asks the very cases that were read when the brief was written: they have to be there."""
    wanted = document.behaviour.cases if document.behaviour else None
    if wanted is None or cases_named(service, wanted):
        return
    versions = list(versions_of(service))
    if versions:
        listed = ", ".join(f"{one.version} ({one.digest[:12]}…)" for one in versions[:MOST_VERSIONS_LISTED])
        more = ", and earlier ones" if len(versions) > MOST_VERSIONS_LISTED else ""
        said = (
            f"no version of {service.name}'s cases has this digest; there are {listed}{more}. "
            f"Of the latest, version {versions[0].version}, it is {versions[0].digest}"
        )
    else:
        said = f"{service.name} has no cases of its own: keep them on its page first, or leave cases out"
    raise BadBrief([f"behaviour.cases: {said}"])


def check_registry(document: Brief) -> None:
    """A case that there isn't would stop the brief at its behaviour stage, after hours of measuring."""
    if document.suite is None or not document.suite.only:
        return
    try:
        suite_plan(only=document.suite.only, settings=settings_of(document.suite))
    except ValueError as error:
        raise BadBrief([f"behaviour.only: {error}"]) from None


def check_enough(document: Brief, traffic_set: TrafficSet) -> None:
    """Too little traffic is said now, not after an hour of engine time: every stage is planned on the times of
    arrival, which a part's index tells without a word of its rows."""
    parts = {part.kind: part for part in traffic_set.parts.all()}
    rule, levels = document.rule, document.levels
    peak = [level for level in levels if level.name == document.peak]
    stages = (
        (TrafficPart.Kind.TUNING, levels, rule.noise_floor_pairs, rule.seed),
        (TrafficPart.Kind.TUNING, levels, ROUNDS_CHECKED if document.races else 1, rule.seed),
        (TrafficPart.Kind.TUNING, peak, 1, rule.seed + 1),
        (TrafficPart.Kind.HELD_OUT, levels, rule.pairs, rule.seed),
    )
    problems: dict[str, str] = {}
    for kind, planned, pairs, seed in stages:
        try:
            check_plan(parts[kind], planned, pairs=pairs, seed=seed, wrap=kind == TrafficPart.Kind.TUNING)
        except ValueError as error:
            # Once for a part: what is mended for one stage is mended for most.
            where = "in the tuning part, " if kind == TrafficPart.Kind.TUNING else ""
            problems.setdefault(kind, f"levels: {where}{error}")
        except (EvidenceMissing, EvidenceDamaged) as error:
            said = f"the index of the set's {kind} part can't be read, so nobody knows whether the plan fits: {error}"
            problems.setdefault(kind, f"traffic.set: {said}")
    if problems:
        raise BadBrief(list(problems.values()))


def check_plan(part: TrafficPart, levels: Sequence[Level], *, pairs: int, seed: int, wrap: bool) -> None:
    """Raises ValueError where the part can't give each pair and level its requests."""
    if not wrap and pairs * sum(level.expected_requests or 0 for level in levels) > FAR_TOO_MANY * part.rows:
        raise ValueError(too_many(part, levels, pairs))
    index = index_of(part)
    if index is not None:
        recorded = index.arrivals_ns.tolist()
        segments_of_times(recorded, levels, pairs=pairs, seed=seed, wrap=wrap, stretches=part.stretches)
    elif not any(level.arrival.process == "replay" for level in levels):
        check_rows(part.rows, levels, drawn_counts(levels, pairs=pairs, seed=seed), pairs=pairs, wrap=wrap)


def too_many(part: TrafficPart, levels: Sequence[Level], pairs: int) -> str:
    needed = pairs * sum(level.expected_requests or 0 for level in levels)
    return (
        f"the {part.kind} part has {part.rows} requests; {pairs} pairs of levels "
        f"{', '.join(level.name for level in levels)} need about {needed:,.0f}: add traffic, or plan fewer pairs, "
        "shorter windows or lower rates"
    )


def check_classes(document: Brief, traffic_set: TrafficSet) -> None:
    """A class that no request has could never be shown to improve or to hold."""
    parts = traffic_set.parts.filter(kind__in=[TrafficPart.Kind.TUNING, TrafficPart.Kind.HELD_OUT])
    known = set.intersection(*(set(part.statistics["classes"]) for part in parts))
    named = [
        *((f"outcome.improve_in.{place}.class", cell.class_) for place, cell in enumerate(document.outcome.improve_in)),
        *((f"guardrails.{rail.id}.cell.class", rail.cell.class_) for rail in document.guardrails),
        *((f"deadlines.{class_}", class_) for class_ in document.deadlines),
        *(
            (f"levels.{place}.deadlines.{class_}", class_)
            for place, level in enumerate(document.levels)
            for class_ in level.deadlines
        ),
    ]
    problems = [
        f"{field}: no request of both parts is of the class {class_!r}; there are {', '.join(sorted(known))}"
        for field, class_ in named
        if class_ not in known | {"all", "default"}
    ]
    if problems:
        raise BadBrief(problems)
