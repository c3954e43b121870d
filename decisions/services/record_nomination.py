from decisions import ledger
from decisions.models import BriefRevision
from decisions.rules.nomination import Nomination
from decisions.services.move_revision import subject


def record_nomination(*, revision: BriefRevision, nomination: Nomination, by: str) -> None:
    revision.nominee = nomination.candidate or ""
    revision.nomination = nomination.document
    BriefRevision.objects.filter(pk=revision.pk).update(nominee=revision.nominee, nomination=revision.nomination)
    ledger.append(
        "brief-nominated",
        subject=subject(revision),
        actor=by,
        details={"nominee": revision.nominee or "none", "reason": nomination.reason},
    )
