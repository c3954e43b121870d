from loadtests import journal
from loadtests.journal import act
from loadtests.models import TrafficSet
from loadtests.services.refused import Refused


def give_service(*, traffic_set: TrafficSet, service: str, by: str) -> None:
    """Puts a set that had no service under the retention of one; raises Refused where it has one already."""
    with act():
        if not TrafficSet.objects.filter(pk=traffic_set.pk, service="").update(service=service):
            raise Refused(f"{traffic_set} has a service already")
        journal.record(
            "traffic-service-given",
            subject=f"traffic set {traffic_set.pk}",
            actor=by,
            digest=traffic_set.digest,
            service=service,
        )
    traffic_set.service = service
