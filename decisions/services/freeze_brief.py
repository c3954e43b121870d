from django.utils import timezone

from decisions.models import Account, BriefRevision
from decisions.rules.brief import BadBrief, Brief, read_brief
from decisions.rules.who_may import may_write_brief
from decisions.services.create_brief import check_names
from decisions.services.move_revision import move_revision, subject
from decisions.services.people import owners, person
from decisions.services.refuse import refuse
from loadtests.journal import act
from loadtests.models import TrafficPart, TrafficSet
from loadtests.traffic.plan import check_rows, drawn_counts


def freeze_brief(*, revision: BriefRevision, by: Account) -> None:
    """Stores the brief's exact bytes and digest. From here on a change is a new revision."""
    refusal = may_write_brief(person(by))
    if refusal:
        refuse("brief-freeze", refusal, subject=subject(revision), actor=by.username)
    document = read_brief(revision.source)
    check_names(document, revision.brief.route)
    traffic_set = check_population(document)
    check_classes(document, traffic_set)
    check_enough(document, traffic_set)
    if document.decision_owner not in owners(revision.brief.route.service):
        raise BadBrief([f"decision_owner: {document.decision_owner} is not an owner of {document.service}"])
    with act():
        move_revision(
            revision=revision,
            act="freeze",
            actor=by.username,
            details={"digest": document.digest, "traffic": document.traffic.set},
            content=document.content,
            digest=document.digest,
            frozen_at=timezone.now(),
            traffic_set=traffic_set,
        )
        revision.editors.add(by)


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


def check_enough(document: Brief, traffic_set: TrafficSet) -> None:
    """Too little held-out traffic is said now, not after an hour of engine time. What a replay needs depends on the
    recorded times, which nobody reads before the held-out stage."""
    if any(level.arrival.process == "replay" for level in document.levels):
        return
    have = traffic_set.parts.get(kind=TrafficPart.Kind.HELD_OUT).rows
    pairs, levels = document.rule.pairs, document.levels
    try:
        counts = drawn_counts(levels, pairs=pairs, seed=document.rule.seed)
        check_rows(have, levels, counts, pairs=pairs, wrap=False)
    except ValueError as error:
        raise BadBrief([f"levels: {error}"]) from None


def check_classes(document: Brief, traffic_set: TrafficSet) -> None:
    """A class that no request has could never be shown to improve or to hold."""
    parts = traffic_set.parts.filter(kind__in=[TrafficPart.Kind.TUNING, TrafficPart.Kind.HELD_OUT])
    known = set.intersection(*(set(part.statistics["classes"]) for part in parts))
    named = [
        *((f"outcome.improve_in.{place}.class", cell.class_) for place, cell in enumerate(document.outcome.improve_in)),
        *((f"guardrails.{rail.id}.cell.class", rail.cell.class_) for rail in document.guardrails),
        *((f"deadlines.{class_}", class_) for class_ in document.deadlines),
    ]
    problems = [
        f"{field}: no request of both parts is of the class {class_!r}; there are {', '.join(sorted(known))}"
        for field, class_ in named
        if class_ not in known | {"all", "default"}
    ]
    if problems:
        raise BadBrief(problems)
