from typing import Any

from decisions import ledger
from decisions.models import BriefRevision
from decisions.rules import states
from decisions.services.refused import Refused
from loadtests import journal


def move_revision(*, revision: BriefRevision, act: str, actor: str, details: dict[str, object], **fields: Any) -> None:
    """Moves a revision by compare-and-swap on its state and words, with its event, in one transaction; ``fields``
    change with the state."""
    try:
        new = states.may_move(revision.state, act)
    except states.NotAllowed as refusal:
        raise Refused(str(refusal)) from None
    with journal.act():
        same = BriefRevision.objects.filter(pk=revision.pk, state=revision.state, source=revision.source)
        moved = same.update(state=new, **fields)
        if not moved:
            raise Refused(f"{revision} has changed meanwhile: look at it again")
        ledger.append(f"brief-{act}", subject=subject(revision), actor=actor, details={"state": new, **details})
    revision.refresh_from_db()


def subject(revision: BriefRevision) -> str:
    return f"brief {revision.brief_id} revision {revision.number}"
