"""What a service asks of the signatures on its decisions.

A request for signatures keeps the policy it was opened under: what an operator changes later is for the next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

# The environment of a route that names none.
PRODUCTION = "production"

AUTHOR, EDITOR, RUN_STARTER = "author", "editor", "run-starter"
HANDS = (AUTHOR, EDITOR, RUN_STARTER)
HANDS_SAID = {
    AUTHOR: "who wrote the revision",
    EDITOR: "who edited it, or whose words it took over",
    RUN_STARTER: "who started its runs",
}

# field: (least, most). A release on one signature ends within three days whatever an operator wishes, and a brief's own
# limit for a release (at most 730 days) holds beside the policy's.
LIMITS = {
    "quorum": (1, 5),
    "request_days": (1, 90),
    "release_days": (1, 730),
    "cooling_off_hours": (0, 336),
    "break_glass_hours": (1, 72),
}


@dataclass(frozen=True)
class Policy:
    """``quorum``: owners whose approval a release needs. ``cooling_off_hours``: from the request on, before anyone may
    approve."""

    quorum: int = 1
    may_not_sign: tuple[str, ...] = HANDS
    second_against_verdict: bool = True
    request_days: int = 14
    release_days: int = 90
    cooling_off_hours: int = 0
    break_glass: bool = True
    break_glass_hours: int = 72

    @property
    def document(self) -> dict[str, Any]:
        return asdict(self) | {"may_not_sign": list(self.may_not_sign)}

    @property
    def waits(self) -> bool:
        """Whether one owner can't approve at once: else there is no glass to break."""
        return self.quorum > 1 or self.cooling_off_hours > 0


DEFAULT = Policy()


def read_policy(document: Mapping[str, Any]) -> Policy:
    """As it was stored; a setting that came later has its default."""
    known = {field.name for field in fields(Policy)}
    found = {name: value for name, value in document.items() if name in known}
    return Policy(**found | {"may_not_sign": tuple(found.get("may_not_sign", HANDS))})


def policy_problems(policy: Policy) -> dict[str, str]:
    """field → what is wrong with it."""
    found = {
        name: f"from {least} to {most}"
        for name, (least, most) in LIMITS.items()
        if not least <= getattr(policy, name) <= most
    }
    if "cooling_off_hours" not in found and policy.cooling_off_hours >= 24 * policy.request_days:
        found["cooling_off_hours"] = "shorter than the time until a request expires: else nobody could ever approve"
    if unknown := set(policy.may_not_sign) - set(HANDS):
        found["may_not_sign"] = f"there is no {', '.join(sorted(unknown))}: choose among {', '.join(HANDS)}"
    return found


def in_words(policy: Policy) -> list[str]:
    """Each setting as a sentence."""
    barred = [HANDS_SAID[one] for one in HANDS if one in policy.may_not_sign]
    owners = "one owner signs" if policy.quorum == 1 else f"{policy.quorum} owners sign"
    cooling = f"Nobody approves in the first {hours(policy.cooling_off_hours)}." if policy.cooling_off_hours else ""
    return [
        f"A release needs that {owners}.",
        f"Never signs: {'; '.join([*barred, 'a superuser'])}.",
        "Rejecting a PASS takes a second owner."
        if policy.second_against_verdict
        else "One owner may reject a PASS alone.",
        *filter(None, [cooling]),
        f"A request for signatures expires after {days(policy.request_days)}, a release after "
        f"{days(policy.release_days)} at the latest.",
        glass_words(policy),
    ]


def glass_words(policy: Policy) -> str:
    if not policy.break_glass:
        return "The glass can’t be broken: no release without all its signatures."
    if not policy.waits:
        return "One owner can approve at once: there is no glass to break."
    return (
        f"One owner may break the glass: a release for {hours(policy.break_glass_hours)} on one signature, which the "
        "owners then have to decide on."
    )


def days(count: int) -> str:
    return f"{count} day{'' if count == 1 else 's'}"


def hours(count: int) -> str:
    return f"{count} hour{'' if count == 1 else 's'}"
