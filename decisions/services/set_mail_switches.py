from collections.abc import Collection

from decisions import ledger
from decisions.models import Account, MailSwitch
from decisions.rules.notices import HAPPENINGS
from decisions.selectors.messages import mail_switches
from decisions.services.refused import Refused
from loadtests.journal import act


def set_mail_switches(*, person: Account, wanted: Collection[str]) -> bool:
    """Of which happenings a person wants mail, from now on; False where it was so already."""
    unknown = set(wanted) - set(HAPPENINGS)
    if unknown:
        raise Refused(f"nothing of the kind {', '.join(sorted(unknown))} happens here")
    with act():
        changed = {one: one in wanted for one, was in mail_switches(person).items() if was != (one in wanted)}
        for happening, on in changed.items():
            MailSwitch.objects.update_or_create(person=person, happening=happening, defaults={"on": on})
        if changed:
            ledger.append(
                "mail-switched", subject=f"account {person.username}", actor=person.username, details={**changed}
            )
    return bool(changed)
