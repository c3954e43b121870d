"""The planned looks of a revision, as far as they were taken."""

from __future__ import annotations

from decisions.models import BriefRevision, TakenLook
from decisions.rules.looks import decides
from loadtests.models import Boot, Campaign
from loadtests.models.campaign import latest_attempts


def taken_looks(revision: BriefRevision) -> list[TakenLook]:
    return list(revision.looks.defer("content"))


def decided_look(revision: BriefRevision) -> TakenLook | None:
    """The look on the way that decided, and with which the held-out pairs ended."""
    return next((one for one in taken_looks(revision) if decides(one.result)), None)


def complete_pairs(campaign: Campaign) -> int:
    """How many pairs, from the first one on, have a finished boot of either arm."""
    boots = latest_attempts(campaign.boots.defer("log_tail", "facts"))
    still_open = [one.pair for one in boots if one.pair is not None and one.state != Boot.State.FINISHED]
    every = [one.pair for one in boots if one.pair is not None]
    return min(still_open, default=max(every, default=-1) + 1)
