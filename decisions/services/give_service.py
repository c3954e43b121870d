from decisions.models import Account, Service
from decisions.rules.who_may import may_import_traffic
from decisions.services.people import person
from decisions.services.refuse import refuse
from decisions.services.refused import Refused
from loadtests.models import TrafficSet
from loadtests.services import give_service as traffic
from loadtests.services.delete_text import holds_text


def give_service(*, traffic_set: TrafficSet, service: Service, by: Account) -> None:
    """Puts a set of no service under the retention of one, whose briefs may then freeze on it. Raises Refused where the
    service takes something out of its traffic that the set's import didn't: what is stored can't be redacted."""
    refusal = may_import_traffic(person(by))
    if refusal:
        refuse("traffic-service-give", refusal, subject=f"traffic set {traffic_set.pk}", actor=by.username)
    if holds_text(traffic_set) and not traffic_set.text_deleted_at:
        check_redacted(traffic_set, service)
    traffic.give_service(traffic_set=traffic_set, service=service.slug, by=by.username)


def check_redacted(traffic_set: TrafficSet, service: Service) -> None:
    said = traffic_set.imported.get("redaction") or {}
    missing = [one for one in service.redactions if one not in said.get("patterns", [])]
    if missing:
        raise Refused(
            f"{traffic_set} was imported without {len(missing)} of the expressions that {service.name} takes out of "
            f"its traffic: import the file again for {service.name}, which redacts it, and delete the text of this set"
        )
