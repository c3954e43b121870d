from django.utils import timezone

from decisions import ledger
from decisions.models import Account, BriefRevision, ImportedTrial
from decisions.rules.reasons import SHORTEST_REASON, is_too_short
from decisions.rules.who_may import may_import_evidence
from decisions.services.import_evidence import check_open
from decisions.services.move_revision import subject
from decisions.services.people import person
from decisions.services.refuse import refuse
from decisions.services.refused import Refused
from loadtests.journal import act


def set_imported_aside(*, trial: ImportedTrial, by: Account, reason: str) -> None:
    """Takes an imported trial out of the comparison; it stays in history with the reason, as evidence does."""
    refusal = may_import_evidence(person(by))
    if refusal:
        refuse("evidence-set-aside", refusal, subject=subject(trial.revision), actor=by.username)
    if is_too_short(reason):
        raise Refused(f"say why in at least {SHORTEST_REASON} characters")
    with act():
        check_open(BriefRevision.objects.only("state").get(pk=trial.revision_id))
        done = ImportedTrial.objects.filter(pk=trial.pk, set_aside_at=None).update(
            set_aside_at=timezone.now(), set_aside_by=by.username, set_aside_reason=reason.strip()
        )
        if not done:
            raise Refused("it has been set aside already")
        trial.revision.run_starters.add(by)
        ledger.append(
            "evidence-set-aside",
            subject=subject(trial.revision),
            actor=by.username,
            details={"trial": trial.pk, "manifest": trial.manifest_digest, "reason": reason.strip()},
        )
    trial.refresh_from_db()
