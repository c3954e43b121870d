"""What a candidate would do at a level, before it has a boot: the level's own requests, answered in virtual time by an
engine of fitted costs and acceptance.

A predicted round time alone says nothing about an open loop, where a faster engine has fewer sequences running, and a
slower one a queue. The rehearsal has both, so that every metric of a brief can be predicted: what it gives are records,
to be measured as those of a trial are. Predictions order the race; they are evidence of nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from loadtests.configurations import Speculative
from loadtests.simulator import Boot, EngineModel, SimulatedTrial
from loadtests.simulator.acceptance import Acceptance, ClassAcceptance
from loadtests.simulator.model import Drafter
from loadtests.simulator.trial import Reading
from loadtests.traffic.planned import PlannedRequest
from loadtests.traffic.rows import NANOSECONDS, Row
from loadtests.tuning.cost_model import CostModel, drafter_of


@dataclass(frozen=True)
class Limits:
    """Of the engine that is rehearsed: as its configuration or its start-up log tells them. ``kv_tokens``: the size of
    the KV cache without a drafter; ``kv_tokens_lost`` {drafter, as ``drafter_of`` names it: what it takes of it}."""

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    block_size: int
    kv_tokens: int
    kv_tokens_lost: Mapping[str, int]


@dataclass(frozen=True)
class Course:
    """One level as every boot of a round ran it: its requests, and ``tokens`` {row: (prompt tokens, output tokens)} as
    the baseline's boots told them. A request of a row that isn't there is left out of the rehearsal."""

    level: str
    planned: Sequence[PlannedRequest]
    tokens: Mapping[int, tuple[int, int]]
    window_s: float
    drain_s: float
    warm_up_s: float = 0.0
    max_concurrency: int | None = None

    @property
    def span_s(self) -> float:
        return self.warm_up_s + self.window_s + self.drain_s

    def shortened(self, share: float) -> "Course":
        """With the first ``share`` of its window alone, and all of its drain."""
        window_s = share * self.window_s
        end_ns = (self.warm_up_s + window_s) * NANOSECONDS
        kept = [one for one in self.planned if one.planned_ns < end_ns]
        return replace(self, planned=kept, window_s=window_s)


class Rehearsal(Boot):
    """A boot whose requests have known lengths."""

    def __init__(self, model: EngineModel, speculative: Speculative | None, tokens: Mapping[int, tuple[int, int]]):
        super().__init__(model, speculative, seed=0)
        self.tokens = tokens

    def read(self, row: Row) -> Reading:
        prompt, output = self.tokens[id(row)]
        return Reading(row.id, prompt, output, "stop", ())


def rehearse(
    model: CostModel, limits: Limits, speculative: Speculative | None, courses: Sequence[Course]
) -> list[SimulatedTrial]:
    """One trial for each course, all in one boot at the speed of a typical one. Raises ValueError for a drafter that no
    trial had."""
    engine = engine_of(model, limits, speculative)
    found = []
    for course in courses:
        known = [one for one in course.planned if one.row in course.tokens]
        boot = Rehearsal(engine, speculative, {id(one.traffic_row): course.tokens[one.row] for one in known})
        found.append(
            boot.run_trial(
                known,
                level=course.level,
                window_s=course.window_s,
                drain_s=course.drain_s,
                warm_up_s=course.warm_up_s,
                max_concurrency=course.max_concurrency,
            )
        )
    return found


def engine_of(model: CostModel, limits: Limits, speculative: Speculative | None) -> EngineModel:
    """An engine without nuisances: a boot of typical speed."""
    drafters = {} if speculative is None else {speculative.method: drafter_model(model, limits, speculative)}
    return EngineModel(
        schema="draftproof.engine-model/1",
        name="rehearsal",
        max_num_seqs=limits.max_num_seqs,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        max_model_len=limits.max_model_len,
        block_size=limits.block_size,
        kv_tokens=limits.kv_tokens,
        round=model.costs.round,
        drafters=drafters,
    )


def drafter_model(model: CostModel, limits: Limits, speculative: Speculative) -> Drafter:
    name = drafter_of(speculative)
    if name not in model.acceptance:
        there = ", ".join(sorted(model.acceptance)) or "none"
        raise ValueError(f"no trial of the drafter {name} was measured; there are {there}")
    kept = model.acceptance[name]
    most = speculative.num_speculative_tokens
    classes = {one: class_acceptance(kept.drafted(1, {one: 1.0}), kept.kept(most, {one: 1.0})) for one in kept.classes}
    return Drafter(
        cost=model.costs.drafters[name],
        acceptance=Acceptance(default=class_acceptance(kept.drafted(1, None), kept.kept(most, None)), classes=classes),
        kv_tokens=limits.kv_tokens_lost.get(name, 0),
    )


def class_acceptance(proposes: float, kept: Sequence[float]) -> ClassAcceptance:
    """``kept``: the share of all rounds that keep at least 1, 2, … drafts; ``proposes``: of those that have any."""
    before = [proposes, *kept[:-1]]
    given = [min(1.0, now / was) if was > 0 else 0.0 for was, now in zip(before, kept, strict=True)]
    return ClassAcceptance(positions=tuple(given), proposes=proposes)
