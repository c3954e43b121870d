from decisions.models import Account, ApiToken


def tokens_of(person: Account) -> list[ApiToken]:
    return list(ApiToken.objects.filter(person=person).select_related("person"))


def tokens_of_others(person: Account) -> list[ApiToken]:
    """Those that were not revoked: the rest lets nobody in."""
    return list(ApiToken.objects.filter(revoked_at=None).exclude(person=person).select_related("person"))
