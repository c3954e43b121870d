from django.utils import timezone

from decisions import ledger
from decisions.models import Account, BriefRevision, ReviewComment
from decisions.rules.who_may import may_comment
from decisions.services.move_revision import subject
from decisions.services.people import person
from decisions.services.refuse import refuse
from decisions.services.refused import Refused
from loadtests.canonical import digest
from loadtests.journal import act

LONGEST_COMMENT = 5_000  # characters


def write_comment(*, revision: BriefRevision, by: Account, text: str) -> ReviewComment:
    """Words on a verdict, which decide nothing."""
    refusal = may_comment(person(by))
    if refusal:
        refuse("comment", refusal, subject=subject(revision), actor=by.username)
    said = text.strip().replace("\r\n", "\n")
    if not said:
        raise Refused("write a comment first: there is none")
    if len(said) > LONGEST_COMMENT:
        raise Refused(f"a comment has at most {LONGEST_COMMENT:,} characters, and this one has {len(said):,}")
    if not revision.verdicts.exists():
        raise Refused("there is no verdict to comment on yet")
    with act():
        comment = ReviewComment.objects.create(
            revision=revision,
            author=by,
            author_name=by.get_full_name() or by.username,
            text=said,
            written_at=timezone.now(),
        )
        ledger.append(
            "brief-commented",
            subject=subject(revision),
            actor=by.username,
            details={"comment": comment.pk, "text": digest(said.encode())},
        )
    return comment
