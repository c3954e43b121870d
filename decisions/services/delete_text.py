from collections.abc import Sequence

from decisions.models import Account
from decisions.rules.reasons import SHORTEST_REASON, is_too_short
from decisions.rules.states import MEASURING
from decisions.rules.who_may import Relation, may_delete_text
from decisions.selectors.kept_text import others_with_its_text, service_of
from decisions.services.people import owners, person
from decisions.services.refuse import refuse
from decisions.services.refused import Refused
from loadtests.journal import act
from loadtests.models import TrafficSet
from loadtests.services import delete_text as traffic
from loadtests.services.remove_unwanted import remove_unwanted


def delete_text(*, traffic_set: TrafficSet, by: Account, reason: str, also: Sequence[TrafficSet] = ()) -> None:
    """Deletes the text of a set for good; its hashes, lengths, times and everything measured with it stay. Sets that
    hold the same text keep it, unless they are among ``also``: then all of them are deleted in one act, or none where
    one may not be."""
    whole = list(dict.fromkeys([*also, traffic_set]))
    for one in whole:
        check_may_delete(one, by)
    if is_too_short(reason):
        raise Refused(f"say why in at least {SHORTEST_REASON} characters")
    others = others_with_its_text(traffic_set)
    if strange := next((one for one in also if one not in others), None):
        raise Refused(f"{strange} holds none of this set's text: delete it on its own page")
    delete_unless_measuring(whole, by=by.username, reason=reason.strip())


def check_may_delete(traffic_set: TrafficSet, by: Account) -> None:
    refusal = may_delete_text(person(by), relation_to(traffic_set))
    if refusal:
        refuse("traffic-text-delete", refusal, subject=f"traffic set {traffic_set.pk}", actor=by.username)


def delete_unless_measuring(whole: Sequence[TrafficSet], *, by: str, reason: str) -> None:
    """A measuring brief needs the rows between two of its campaigns too.

    No store is asked within the act, which others wait for: what an outline is of must never go before the outline is
    kept, so outlines come before it; and the rows go after it, now or at a later sweep.
    """
    for one in whole:
        refuse_while_in_use(one)
    for one in whole:
        traffic.keep_outlines(one, by)
    with act():
        for one in whole:
            refuse_while_measuring(one)
            still_in = [other for other in others_with_its_text(one) if other not in whole]
            traffic.let_go(one, by=by, reason=reason, still_in=still_in)
    for one in whole:
        one.refresh_from_db()
    remove_unwanted()


def refuse_while_in_use(traffic_set: TrafficSet) -> None:
    refuse_while_measuring(traffic_set)
    traffic.refused_or(traffic_set)


def refuse_while_measuring(traffic_set: TrafficSet) -> None:
    measuring = traffic_set.revisions.filter(state=MEASURING).select_related("brief").first()
    if measuring:
        raise Refused(f"{measuring} is measuring on this traffic: cancel it, or wait for its verdict")


def relation_to(traffic_set: TrafficSet) -> Relation:
    service = service_of(traffic_set)
    return Relation(service_owners=owners(service) if service else frozenset())
