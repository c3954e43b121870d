from decisions import ledger
from decisions.models import Account, Brief, BriefRevision
from decisions.rules.brief import read_brief
from decisions.rules.who_may import may_write_brief
from decisions.services.create_brief import check_names
from decisions.services.move_revision import subject
from decisions.services.people import person
from decisions.services.refuse import refuse
from decisions.services.refused import Refused
from loadtests.canonical import digest
from loadtests.journal import act


def edit_brief(*, revision: BriefRevision, source: str, by: Account) -> None:
    """Changes a draft; whoever does is an editor and will not be able to sign."""
    refusal = may_write_brief(person(by))
    if refusal:
        refuse("brief-edit", refusal, subject=subject(revision), actor=by.username)
    document = read_brief(source)
    check_names(document, revision.brief.route)
    with act():
        if not BriefRevision.objects.filter(pk=revision.pk, state="draft").update(source=source):
            raise Refused(f"{revision} is {revision.state}: a change makes a new revision")
        Brief.objects.filter(pk=revision.brief_id).update(title=document.title)
        revision.editors.add(by)
        ledger.append(
            "brief-edited",
            subject=subject(revision),
            actor=by.username,
            details={"source": digest(source.encode())},
        )
    revision.refresh_from_db()
