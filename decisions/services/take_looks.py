import json

from decisions import ledger
from decisions.models import BriefRevision, TakenLook
from decisions.rules.looks import decides, due
from decisions.rules.verdict import verdict_content
from decisions.rules.wording import counted
from decisions.selectors.evidence import evidence_named
from decisions.selectors.looks import complete_pairs, taken_looks
from decisions.services.compute_verdict import content_by
from decisions.services.move_revision import subject
from loadtests.canonical import digest, digest_of
from loadtests.journal import act
from loadtests.models import Boot, Campaign
from loadtests.services.end_campaign import end_campaign
from loadtests.statistics.looks import Look

ACTOR = "draftproof"


def take_looks(*, revision: BriefRevision, campaign: Campaign) -> None:
    """Judges the held-out pairs at every look on the way that they have reached, in order and once each; the first that
    decides ends their campaign, a boot that is just running with it.

    A look, its event and the end of the campaign are written together or not at all. Called again after a fall, it
    finds the look taken, or computes the same bytes from the same pairs, however many more have finished since.
    """
    brief = revision.document
    if brief.rule.looks == 1 or campaign.state not in (*Campaign.OPEN, Campaign.State.DONE):
        return
    taken = {one.number: one.result for one in taken_looks(revision)}
    if any(decides(result) for result in taken.values()):
        return
    for look in due(brief, complete_pairs(campaign), taken):
        with act():
            found = take(revision, look, of=brief.rule.looks)
            if decides(found.result):
                stop(campaign, look, of=brief.rule.looks)
                return


def take(revision: BriefRevision, look: Look, *, of: int) -> TakenLook:
    content = content_by(revision=revision, pairs=look.pairs)
    document = json.loads(content)
    found = TakenLook.objects.create(
        revision=revision,
        number=look.number,
        pairs=look.pairs,
        result=document["verdict"],
        content=content,
        digest=digest(content),
        evidence_digest=digest_of(document["evidence"]),
    )
    ledger.append(
        "brief-look",
        subject=subject(revision),
        actor=ACTOR,
        details={
            "look": look.number,
            "of": of,
            "pairs": look.pairs,
            # Whether it decided, and no more: the history is read while the held-out stage goes on.
            "decides": decides(found.result),
            "digest": found.digest,
            "evidence": found.evidence_digest,
        },
    )
    return found


def content_again(*, look: TakenLook) -> bytes:
    """The look's bytes, computed from the very evidence that they name, by the rules that they name. What counts today
    may be other trials: a pair was run again since, or a later stage has ended. Raises ValueError where a trial that
    they name is gone."""
    revision, told = look.revision, look.document
    if revision.content is None:
        raise ValueError(f"{revision} isn't frozen")
    return verdict_content(
        bytes(revision.content),
        told["nominee"],
        evidence_named(revision, told["evidence"]),
        told["evidence"],
        suite_to_come=True,
        code=told["code"],
    )


def stop(campaign: Campaign, look: Look, *, of: int) -> None:
    unfinished = campaign.boots.filter(state__in=[Boot.State.WAITING, Boot.State.RUNNING]).count()
    left = f": {counted(unfinished, 'boot')} of the plan won't be needed" if unfinished else ""
    reason = f"look {look.number} of {of}, after {look.pairs} pairs, decided{left}"
    end_campaign(campaign=campaign, state=Campaign.State.DONE, reason=reason, actor=ACTOR)
    campaign.refresh_from_db()
