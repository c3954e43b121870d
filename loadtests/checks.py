"""Can evidence be kept where the settings say? Asked by ``manage.py check --deploy`` and when a web process or a worker
starts; not by other commands, which would wait for a server that is away and needn't."""

from typing import Any

from django.core.checks import CheckMessage, Error, Warning, register
from django.core.exceptions import ImproperlyConfigured

from loadtests.evidence.store import EvidenceUnreachable
from loadtests.evidence.stores import evidence_store

HINT = "docs/evidence.md says which settings and rights the store needs."


@register("evidence", deploy=True)
def check_evidence_store(**_: Any) -> list[CheckMessage]:
    """A server that is away for now is a warning: what needs it says so, and goes on when it is back."""
    try:
        evidence_store().reach()
    except ImproperlyConfigured as error:
        return [Error(str(error), hint=HINT, id="loadtests.E001")]
    except EvidenceUnreachable as error:
        if error.passing:
            return [Warning(f"the evidence store is away: {error}", hint=HINT, id="loadtests.W001")]
        return [Error(f"the evidence store can't be used: {error}", hint=HINT, id="loadtests.E002")]
    return []


def require_evidence_store() -> None:
    """Raises ImproperlyConfigured where nothing could be kept."""
    for found in check_evidence_store():
        if found.is_serious():
            raise ImproperlyConfigured(f"{found.msg}. {found.hint}")
