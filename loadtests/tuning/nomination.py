"""Who wins the race, by the brief's rule. Exploratory: the winner's own score is biased upwards because it was chosen
for it, and nothing here is a claim about the population (design §4)."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from loadtests.tuning.field import (
    NONE,
    WORLDS,
    Field,
    Observation,
    Predictions,
    Rules,
    Runner,
    Standing,
    standard_normals,
)


@dataclass(frozen=True)
class Winner:
    """``runner`` None: no speculation wins. ``score``: the estimate of its smallest improve goal, from boots and
    predictions together; ``measured``: the same from the plain means of its boots' effects. ``optimism``: by how much
    the best of so many measured scores is expected to look better than it is, for display beside the held-out result.
    All in the unit of the effects. ``tied``: runners within the noise of the best, the winner among them. ``reason`` is
    one sentence with figures."""

    runner: str | None
    score: float | None
    measured: float | None
    optimism: float | None
    tied: tuple[str, ...]
    standings: tuple[Standing, ...]
    reason: str


def nominate(
    rules: Rules,
    runners: Sequence[Runner],
    observations: Iterable[Observation],
    predictions: Predictions,
    *,
    anyone: bool = False,
) -> Winner:
    """The runner that is worth most, of those that boots of their own measured in every goal to improve, and that
    aren't shown to break a goal; ties within
    the noise of the difference go to the smaller ``mean_k``. No speculation wins where nobody is worth more than
    nothing, unless ``anyone`` (the brief's rule "best-candidate"). Errors as in ``next_round``."""
    field = Field(rules, runners, list(observations), predictions)
    able = [one.name for one in field.runners if field.measured(one.name) and field.may_run(one.name)]
    better = [one for one in able if anyone or field.expected(one) > 0]
    if not better:
        return Winner(None, None, None, None, (), field.standings, nobody(field, able))
    best = min(better, key=field.rank)
    tied = [one for one in better if one == best or is_tied(field, one, best)]
    chosen = min(tied, key=lambda one: (field.runner(one).mean_k, field.rank(one)))
    return Winner(
        runner=chosen,
        score=field.score(chosen).mean,
        measured=measured(field, chosen),
        optimism=optimism(field, able),
        tied=tuple(sorted(tied, key=field.rank)),
        standings=field.standings,
        reason=why(field, chosen, best, tied),
    )


def is_tied(field: Field, one: str, best: str) -> bool:
    """Within one standard error of the difference."""
    difference = field.worths(best) - field.worths(one)
    return float(difference.mean()) <= min(float(difference.std()), field.rules.same)


def measured(field: Field, name: str) -> float | None:
    """The smallest mean effect over the improve goals; None where a goal has no finite one."""
    means = []
    for goal in field.rules.improve:
        effects = [one.effect for one in field.observations if one.runner == name and one.goal == goal.name]
        known = [one for one in effects if math.isfinite(one)]
        if not known:
            return None
        means.append(statistics.fmean(known))
    return min(means)


def optimism(field: Field, names: Sequence[str]) -> float:
    """How far the best measured score is expected to lie above its runner's truth, if the estimates were true and boots
    differed as these did: by simulation, since scores are minima over goals and have unequal numbers of boots.
    Source: the winner's curse of Capen, Clapp & Campbell, Journal of Petroleum Technology 23 (1971) 641-653."""
    at = [field.place[one] for one in names]
    boots = np.array([field.boots[one] for one in names])
    normals = standard_normals(WORLDS, len(names) + 1)
    luck = normals[:, 1:] / np.sqrt(boots) - normals[:, :1] / math.sqrt(max(1, field.boots.get(NONE, 0)))
    told = [field.posteriors[goal.name] for goal in field.rules.improve]
    true = np.min([one.mean[at] for one in told], axis=0)
    seen = np.min([one.mean[at] + one.spread * luck for one in told], axis=0)
    best = seen.argmax(axis=1)
    return float((seen[np.arange(WORLDS), best] - true[best]).mean())


def nobody(field: Field, able: Sequence[str]) -> str:
    if not able:
        return (
            "No speculation wins: no candidate has boots of its own that tell of every goal to improve and break none."
        )
    best = min(able, key=field.rank)
    return f"No speculation wins: nobody is better, {best} comes closest with {field.figures(best)}."


def why(field: Field, chosen: str, best: str, tied: Sequence[str]) -> str:
    if chosen == best:
        drafts = ", and drafts least among those within the noise" if len(tied) > 1 else ""
        return f"{chosen} did best: {field.figures(chosen)}{drafts}."
    return f"{chosen} ({field.figures(chosen)}) is within the noise of the best, {best} ({field.figures(best)})."
