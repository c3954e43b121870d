from decisions.models import Account
from decisions.rules.who_may import may_declare_fault
from decisions.services.people import person
from decisions.services.refuse import refuse
from decisions.services.refused import Refused
from loadtests.models import Boot
from loadtests.services import give_up_boot

SHORTEST_REASON = 10


def declare_fault(*, boot: Boot, by: Account, reason: str) -> None:
    """States that a boot failed by a fault of worker, host or operator: its whole pair is run again."""
    refusal = may_declare_fault(person(by))
    if refusal:
        refuse("declare-fault", refusal, subject=f"boot {boot.pk}", actor=by.username)
    if len(reason.strip()) < SHORTEST_REASON:
        raise Refused(f"say in at least {SHORTEST_REASON} characters what the fault was")
    revision = boot.campaign.brief_campaign.revision
    if revision.state != "measuring":
        raise Refused(f"the brief is {revision.state}: evidence can't be run again after its verdict")
    give_up_boot.declare_fault(boot=boot, reason=reason.strip(), actor=by.username)
