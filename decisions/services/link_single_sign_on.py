from allauth.socialaccount.models import SocialAccount, SocialLogin
from django.http import HttpRequest

from decisions import ledger
from decisions.models import Account
from decisions.rules.identity import why_not_linked
from decisions.services.refused import Refused
from loadtests.journal import act


def link_single_sign_on(*, request: HttpRequest, login: SocialLogin) -> None:
    """The first time that somebody comes: their account here is the one with the e-mail address that the provider has
    verified. Nobody gets an account by it, nor a role. Later they are known by the provider's name for them."""
    said = login.account.extra_data.get("id_token", {})
    email, verified = str(said.get("email", "")), said.get("email_verified") is True
    with act():
        found = list(Account.objects.filter(email__iexact=email)[:2]) if email else []
        linked = SocialAccount.objects.filter(user__in=found).exists()
        refusal = why_not_linked(email=email, verified=verified, accounts=len(found), linked=linked)
        if refusal:
            raise Refused(refusal)
        login.connect(request, found[0])
        ledger.append(
            "single-sign-on-linked",
            subject=f"account {found[0].username}",
            actor=found[0].username,
            details={"issuer": str(said.get("iss", "")), "subject": str(said.get("sub", "")), "email": email},
        )
