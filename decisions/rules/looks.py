"""At which planned look a verdict stands: the brief as that look judges it, and the pairs that belong to it."""

from collections.abc import Collection, Sequence

from decisions.rules.brief import Brief
from decisions.rules.evidence import TrialEvidence
from decisions.rules.validity import complete_pairs, held_out_pairs
from loadtests.statistics.looks import Look, look_after

# Each is tested at the look's own share of alpha. INCONCLUSIVE goes on by the plan, and so does INVALID: the pair at
# fault may still be run again.
DECISIVE = ("PASS", "FAIL")


def decides(result: str) -> bool:
    """Whether a look on the way with this result is the last one."""
    return result in DECISIVE


def due(brief: Brief, pairs: int, taken: Collection[int]) -> list[Look]:
    """The looks on the way that ``pairs`` complete pairs have reached and that weren't taken yet, in order. The one
    after all pairs is the brief's verdict itself."""
    return [one for one in brief.rule.planned_looks[:-1] if one.pairs <= pairs and one.number not in taken]


def look_at(brief: Brief, trials: Sequence[TrialEvidence]) -> Look:
    """The look that the complete held-out pairs have reached, or are on the way to."""
    return look_after(brief.rule.planned_looks, complete_pairs(brief, trials))


def look_reached(brief: Brief, trials: Sequence[TrialEvidence]) -> Look:
    """The last look whose own first pairs are all complete; on the way to the first one, the first. What was begun for
    a later one says nothing before its time: else it would be judged at an alpha that was planned for more pairs."""
    found = held_out_pairs(brief, trials)
    complete = set.intersection(*({pair.number for pair in pairs} for pairs in found.values()))
    looks = brief.rule.planned_looks
    return next((one for one in reversed(looks) if complete.issuperset(range(one.pairs))), looks[0])


def judged_by(brief: Brief, look: Look) -> Brief:
    """The brief with the look's pairs, and a confidence that spends the look's alpha."""
    if brief.rule.looks == 1:
        return brief
    update = {"pairs": look.pairs, "confidence": 1 - look.alpha, "looks": 1, "interim": ()}
    return brief.model_copy(update={"rule": brief.rule.model_copy(update=update)})


def belonging(brief: Brief, trials: Sequence[TrialEvidence], look: Look) -> list[TrialEvidence]:
    """Without held-out pairs that were begun for a later look; those that no look planned stay, to be found out."""
    later = range(look.pairs, brief.rule.pairs)
    return [one for one in trials if one.purpose != "held-out" or one.pair not in later]
