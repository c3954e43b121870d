"""Whether what is released on a route may be relied on now: what a pipeline asks before it deploys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from django.utils import timezone

from decisions.models import Release, Route
from decisions.selectors.review import bound_now
from decisions.selectors.services import release_state

IN_FORCE: Final = "in-force"
STALE: Final = "stale"
NONE: Final = "none"


@dataclass(frozen=True)
class Standing:
    """``stale``: there was an approval, and it has to be renewed; ``none``: there is none, or it was taken back."""

    state: Literal["in-force", "stale", "none"]
    sentence: str
    release: Release | None = None


def standing_of_route(route: Route) -> Standing:
    """By the clock and by what is stored, whatever background tasks have noticed."""
    release = route.releases.select_related("revision", "signature__verdict", "configuration", "fallback").first()
    if release is None:
        return Standing(NONE, f"Nothing was ever released on {route}.")
    state = release_state(release, timezone.now())
    if state == "expired":
        said = f"The release on {route} expired on {release.expires_at:%d %B %Y at %H:%M} UTC: revalidate it."
        return Standing(STALE, said, release)
    if state != "in-force":
        return Standing(NONE, f"The last release on {route} was {state}.", release)
    if release.signature.bound != bound_now(release.revision, release.signature.verdict):
        said = "its brief, its evidence or its verdict has changed since it was signed"
        return Standing(STALE, f"The release on {route} is in force, but {said}: decide on it again.", release)
    return Standing(IN_FORCE, f"A release is in force on {route} until {release.expires_at:%d %B %Y}.", release)
