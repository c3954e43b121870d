"""What people are told: from an event of the ledger to one sentence, a page, and the people it is for.

A sentence names briefs, routes and people. Reasons, comments, prompts and outputs stay behind its link.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

ASKED, SAID, DECIDED, FELL_AWAY, RELEASE = "asked", "said", "decided", "fell-away", "release"
GLASS, STOPPED, STAGE, HISTORY, ENDPOINT = "glass", "stopped", "stage", "history", "endpoint"
KEYS = "keys"


@dataclass(frozen=True)
class Happening:
    """A kind of thing that people are told of, which each person switches. ``by_mail``: before they have."""

    label: str
    by_mail: bool = True


HAPPENINGS: Final[Mapping[str, Happening]] = {
    ASKED: Happening("A verdict waits for signatures, or the request for them expired"),
    SAID: Happening("Somebody commented, or asked for changes"),
    DECIDED: Happening("A brief was signed, approved, rejected or withdrawn"),
    FELL_AWAY: Happening("Signatures fell away, because what they were given for has changed"),
    RELEASE: Happening("A release is in force, expires soon, has expired or was revoked"),
    GLASS: Happening("The glass was broken, and the owners have to decide"),
    STOPPED: Happening("The stages of a brief stopped or were cancelled"),
    STAGE: Happening("A campaign of a brief has finished", by_mail=False),
    HISTORY: Happening("The history is broken, or a checkpoint could not be signed or sent"),
    KEYS: Happening("Somebody’s password was set anew, or their second factor taken off"),
    ENDPOINT: Happening("Messages to a webhook or to Slack were given up, and it was disabled"),
}

# Whom a notice is for. Hands: who wrote, edited or started what it is about.
OWNERS, HANDS, OPERATORS, AUDITORS = "owners", "hands", "operators", "auditors"
# The page that it leads to.
SIGN_OFF, BRIEF, ROUTE, LEDGER, ENDPOINT_PAGE = "sign-off", "brief", "route", "ledger", "endpoint"


@dataclass(frozen=True)
class Notice:
    happening: str
    sentence: str
    tells: tuple[str, ...]
    page: str


ON_A_BRIEF, ON_A_ROUTE = (OWNERS, HANDS), (OWNERS, HANDS, OPERATORS)
OF_A_BROKEN_GLASS = ":glass"

# kind of the event → what is told of it; a kind that isn't here is told nobody.
NOTICES: Final[Mapping[str, Notice]] = {
    "brief-judge": Notice(ASKED, "{brief} waits for its owners’ signatures: {verdict}.", ON_A_BRIEF, SIGN_OFF),
    "signatures-asked-again": Notice(ASKED, "{actor} asked the owners again to sign on {brief}.", ON_A_BRIEF, SIGN_OFF),
    "request-expired": Notice(
        ASKED, "The request for signatures on {brief} expired: an engineer can ask again.", ON_A_BRIEF, SIGN_OFF
    ),
    "brief-commented": Notice(SAID, "{actor} commented on {brief}.", ON_A_BRIEF, SIGN_OFF),
    "brief-request-changes": Notice(
        SAID, "{actor} asked for changes to {brief}: a new revision is needed.", ON_A_BRIEF, SIGN_OFF
    ),
    "brief-approve-in-part": Notice(
        DECIDED,
        "{actor} approved {brief}, as signature {signature} of {of}: another owner has to sign.",
        ON_A_BRIEF,
        SIGN_OFF,
    ),
    "brief-reject-in-part": Notice(
        DECIDED,
        "{actor} rejected {brief}, as signature {signature} of {of}: another owner has to sign.",
        ON_A_BRIEF,
        SIGN_OFF,
    ),
    "brief-approve": Notice(DECIDED, "{actor} approved {brief}.", ON_A_BRIEF, SIGN_OFF),
    "brief-reject": Notice(DECIDED, "{actor} rejected {brief}.", ON_A_BRIEF, SIGN_OFF),
    "brief-withdraw": Notice(DECIDED, "{actor} withdrew {brief}.", ON_A_BRIEF, BRIEF),
    "signatures-fell-away": Notice(
        FELL_AWAY,
        "The signatures on {brief} fell away: its brief, evidence or verdict is no longer what was signed.",
        ON_A_BRIEF,
        SIGN_OFF,
    ),
    # Who decided on the brief has heard of it: this is for whoever runs the route.
    "release-in-force": Notice(RELEASE, "A release is in force on {route} until {expires}.", (OPERATORS,), ROUTE),
    "release-expires-soon": Notice(
        RELEASE,
        "The release on {route} expires at {expires}: without a new one the baseline answers from then on.",
        ON_A_ROUTE,
        ROUTE,
    ),
    "release-expired": Notice(RELEASE, "The release on {route} expired: the baseline answers.", ON_A_ROUTE, ROUTE),
    "release-revoked": Notice(
        RELEASE, "{actor} revoked the release on {route}: the baseline answers.", ON_A_ROUTE, ROUTE
    ),
    "brief-break-glass": Notice(
        GLASS, "{actor} broke the glass for {brief}: it runs, and the owners have to decide.", ON_A_ROUTE, SIGN_OFF
    ),
    "release-expires-soon:glass": Notice(
        GLASS,
        "The release by a broken glass on {route} ends at {expires}: the owners have to decide.",
        ON_A_ROUTE,
        ROUTE,
    ),
    "release-expired:glass": Notice(
        GLASS,
        "The release by a broken glass on {route} ended: the baseline answers, and the owners have to decide still.",
        ON_A_ROUTE,
        ROUTE,
    ),
    "brief-halted": Notice(STOPPED, "The stages of {brief} stopped: somebody has to look.", (HANDS, OPERATORS), BRIEF),
    "brief-cancel": Notice(STOPPED, "{actor} cancelled {brief}.", (HANDS,), BRIEF),
    "campaign-done": Notice(STAGE, "A {stage} campaign of {brief} has finished.", (HANDS,), BRIEF),
    "history-broken": Notice(
        HISTORY, "The history is not as it was recorded: an auditor has to look.", (OPERATORS, AUDITORS), LEDGER
    ),
    "checkpoint-failed": Notice(
        HISTORY, "A checkpoint of the history could not be {what}.", (OPERATORS, AUDITORS), LEDGER
    ),
    # Whose, and why, the history says.
    "password-reset": Notice(
        KEYS, "{actor} set somebody else’s password anew: they can’t sign for a day.", (OPERATORS, AUDITORS), LEDGER
    ),
    "second-factor-reset": Notice(
        KEYS,
        "{actor} took off somebody else’s second factor: they can’t sign for a day.",
        (OPERATORS, AUDITORS),
        LEDGER,
    ),
    "endpoint-given-up": Notice(
        ENDPOINT, "{endpoint} was disabled: messages to it failed again and again.", (OWNERS, OPERATORS), ENDPOINT_PAGE
    ),
}

# From an event's details; nothing else of them gets into a sentence.
FACTS = ("verdict", "signature", "of", "what")


@dataclass(frozen=True)
class About:
    """What a notice is about, in words, and who stands how to it, as user names. ``judged``: there is a verdict."""

    actor: str
    brief: str = ""
    route: str = ""
    stage: str = ""
    endpoint: str = ""
    judged: bool = True
    owners: frozenset[str] = frozenset()
    hands: frozenset[str] = frozenset()
    operators: frozenset[str] = frozenset()
    auditors: frozenset[str] = frozenset()


def notice_of(kind: str, details: Mapping[str, Any]) -> Notice | None:
    if not details.get("glass_broken"):
        return NOTICES.get(kind)
    # That it is in force was told with the breaking of the glass.
    return NOTICES.get(kind + OF_A_BROKEN_GLASS)


def sentence_of(notice: Notice, about: About, details: Mapping[str, Any]) -> str:
    facts = {name: str(details.get(name, "")) for name in FACTS}
    said = notice.sentence.format(
        actor=about.actor,
        brief=about.brief,
        route=about.route,
        stage=about.stage,
        endpoint=about.endpoint,
        expires=clock(str(details.get("expires", ""))),
        **facts,
    )
    # A title may hold a line break, which would be a second header of a mail.
    return " ".join(said.split())


def clock(at: str) -> str:
    return f"{datetime.fromisoformat(at):%Y-%m-%d %H:%M} UTC" if at else ""


def told(notice: Notice, about: About) -> frozenset[str]:
    """Owners hear of a brief once there is a verdict, and nobody hears of what they did themselves."""
    of_role = {
        OWNERS: about.owners if about.judged else frozenset[str](),
        HANDS: about.hands,
        OPERATORS: about.operators,
        AUDITORS: about.auditors,
    }
    return frozenset[str]().union(*(of_role[role] for role in notice.tells)) - {about.actor}


def wants_mail(happening: str, switched: bool | None) -> bool:
    """``switched``: what the person chose; None where they haven't."""
    return HAPPENINGS[happening].by_mail if switched is None else switched


MOST_AHEAD = timedelta(days=14)


def expires_soon_from(released_at: datetime, expires_at: datetime) -> datetime:
    """Two weeks before the end, or in the last third of a release that is a short one."""
    return expires_at - min(MOST_AHEAD, (expires_at - released_at) / 3)
