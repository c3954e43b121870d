from decisions import ledger
from decisions.models import Account, Brief, BriefRevision, Route
from decisions.rules.brief import BadBrief, read_brief
from decisions.rules.brief import Brief as BriefDocument
from decisions.rules.who_may import may_write_brief
from decisions.services.move_revision import subject
from decisions.services.people import person
from decisions.services.refuse import refuse
from loadtests.journal import act


def check_names(document: BriefDocument, route: Route) -> None:
    """A brief speaks of the service and route it is written for."""
    problems = []
    if document.service != route.service.slug:
        problems.append(f"service: this route belongs to {route.service.slug}, the brief says {document.service}")
    if document.route != route.slug:
        problems.append(f"route: the brief is written for {route.slug}, but says {document.route}")
    if document.baseline.hardware.pool != route.service.pool:
        problems.append(
            f"baseline.hardware.pool: the service runs on {route.service.pool}, not {document.baseline.hardware.pool}"
        )
    if problems:
        raise BadBrief(problems)


def create_brief(*, route: Route, source: str, by: Account) -> BriefRevision:
    refusal = may_write_brief(person(by))
    if refusal:
        refuse("brief-create", refusal, subject=f"route {route.slug}", actor=by.username)
    document = read_brief(source)
    check_names(document, route)
    with act():
        brief = Brief.objects.create(route=route, title=document.title)
        revision = BriefRevision.objects.create(brief=brief, number=1, source=source, author=by)
        revision.editors.add(by)
        ledger.append("brief-created", subject=subject(revision), actor=by.username, details={"title": document.title})
    return revision
