from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError

from decisions import ledger
from decisions.models import Account
from decisions.services.reauthenticate import Credentials, reauthenticate
from decisions.services.refuse import refuse
from decisions.services.refused import Refused
from loadtests.journal import act


def change_password(*, person: Account, credentials: Credentials, new: str) -> None:
    """Every other session of theirs ends: Django knows a session by the password too."""
    subject = f"account {person.username}"
    try:
        validate_password(new, person)
    except ValidationError as error:
        raise Refused(" ".join(error.messages).rstrip(".")) from None
    if new == credentials.password:
        raise Refused("the new password is the old one")
    proof = reauthenticate(person, credentials)
    if proof.refusal:
        refuse("password-change", proof.refusal, subject=subject, actor=person.username)
    with act():
        # Whoever had learned the old one must not come before an operator who takes it away, nor after.
        if Account.objects.get(pk=person.pk).password != person.password:
            raise Refused("the password was set anew meanwhile: sign in with that one")
        person.set_password(new)
        person.must_change_password = False
        person.save(update_fields=["password", "must_change_password"])
        ledger.append("password-changed", subject=subject, actor=person.username, details={"by": proof.method})
