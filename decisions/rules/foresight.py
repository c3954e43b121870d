"""What a race may expect of candidates that have few boots, or none: a cost model is fitted to the trials so far, the
last round's requests are rehearsed under every candidate in virtual time, and schedules are proposed for the running
batches that were seen. It orders the race and brings candidates to it; it is evidence of nothing."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from decisions.rules.brief import Brief
from decisions.rules.evidence import COLUMNS, TrialEvidence, columns_of, window_and_warm_up
from decisions.rules.measures import value
from decisions.rules.race import Aim, aims
from loadtests.configurations import Speculative
from loadtests.evidence.records import records_table
from loadtests.simulator import SimulatedTrial
from loadtests.traffic.levels import Level
from loadtests.traffic.planned import PlannedRequest
from loadtests.traffic.rows import NANOSECONDS, Row
from loadtests.tuning.cost_model import CostModel, MeasuredTrial, ObservedTrial, drafter_of, fit_cost_model, observe
from loadtests.tuning.economics import RoundEconomics, round_economics
from loadtests.tuning.posterior import bounded
from loadtests.tuning.propose import Load, propose_schedule
from loadtests.tuning.race import NONE
from loadtests.tuning.rehearsal import Course, Limits, rehearse

# Virtual time that one step of a race may rehearse, over all candidates and levels. Longer windows are rehearsed in
# part, unless too little of each would be left to build up a queue.
MOST_REHEARSED_S = 20_000.0
LEAST_SHARE = 0.05
# Proposals of one family: from one round to the next the model changes, and with it what it proposes.
MOST_PROPOSED = 3
# vLLM's own, where the baseline leaves them open.
BATCHED_TOKENS, BLOCK_SIZE = 2_048, 16


@dataclass(frozen=True, eq=False)
class SeenTrial:
    """A finished trial of the noise floor or of tuning. ``candidate`` None is the baseline; ``round`` None is the noise
    floor. ``records`` and ``timeline`` as their readers give them."""

    boot: str
    candidate: str | None
    round: int | None
    level: str
    records: pa.Table
    timeline: pa.Table | None
    kv_tokens: int | None


@dataclass(frozen=True)
class Foresight:
    """``predictions`` {candidate: {goal: effect}}; ``proposed``: names of schedules to join the race; ``batches``:
    share of time at each running batch, over the levels alike."""

    predictions: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    proposed: tuple[str, ...] = ()
    batches: Mapping[int, float] = field(default_factory=dict)


def foresee(brief: Brief, trials: Sequence[SeenTrial], names: Sequence[str]) -> Foresight:
    """``names``: the candidates in the race so far. Empty before the first round is over, and where no cost model can
    be fitted."""
    last = max((one.round for one in trials if one.round is not None), default=None)
    if last is None:
        return Foresight()
    model = model_of(brief, trials)
    beside = [one for one in trials if one.round == last and one.candidate is None]
    loads = loads_of(brief, beside)
    batches = together(loads)
    if model is None or not loads:
        return Foresight(batches=batches)
    proposed = tuple(proposals(brief, model, loads, names))
    courses = courses_of(brief, beside)
    predictions = predicted(brief, model, limits_of(brief, trials), courses, [*names, *proposed])
    return Foresight(predictions, proposed, batches)


def model_of(brief: Brief, trials: Sequence[SeenTrial]) -> CostModel | None:
    observed = [found for one in trials if (found := observed_or_none(brief, one)) is not None]
    try:
        return fit_cost_model(observed)
    except ValueError:
        return None


def observed_or_none(brief: Brief, trial: SeenTrial) -> ObservedTrial | None:
    """None where too few of its requests have the engine's own times."""
    try:
        return observe(MeasuredTrial(trial.boot, trial.level, setting_of(brief, trial.candidate), trial.records))
    except ValueError:
        return None


def setting_of(brief: Brief, candidate: str | None) -> Speculative | None:
    return None if candidate is None else brief.candidate(candidate).speculative


def loads_of(brief: Brief, baseline: Sequence[SeenTrial]) -> list[Load]:
    """The levels as the baseline's engine saw them, where it told how many sequences were running."""
    found = []
    for level in brief.levels:
        told = [economics_of(level, one) for one in baseline if one.level == level.name and one.timeline is not None]
        known = [(one.running.share, one) for one in told if one.running is not None and one.context_tokens is not None]
        if known:
            batches = mean_shares([share for share, _ in known])
            context = statistics.fmean(one.context_tokens or 0.0 for _, one in known)
            found.append(Load(level.name, batches, context, known[0][1].mix or None))
    return found


def economics_of(level: Level, trial: SeenTrial) -> RoundEconomics:
    return round_economics(
        trial.records, None, timeline=trial.timeline, warm_up_s=level.warm_up_s, window_s=level.duration_s
    )


def together(loads: Sequence[Load]) -> dict[int, float]:
    return mean_shares([load.batches for load in loads])


def mean_shares(shares: Sequence[Mapping[int, float]]) -> dict[int, float]:
    batches = sorted({batch for one in shares for batch in one})
    return {batch: statistics.fmean(one.get(batch, 0.0) for one in shares) for batch in batches}


def proposals(brief: Brief, model: CostModel, loads: Sequence[Load], names: Sequence[str]) -> Iterable[str]:
    """New names inside the frozen search space, of families that ask for proposals and have been measured."""
    most = brief.baseline.arguments.max_num_seqs
    listed = {one.name for one in brief.all_candidates}
    for family in brief.search:
        drafter = drafter_of(brief.candidate(family.named_k(family.draft_lengths[0])).speculative)
        earlier = [name for name in names if name not in listed and name.startswith(f"{family.name}-s")]
        if not family.schedules.propose or drafter not in model.measured or len(earlier) >= MOST_PROPOSED:
            continue
        found = propose_schedule(model, drafter, loads, draft_lengths=family.draft_lengths, max_num_seqs=most)
        name = family.named_schedule(found.schedule) if found.schedule else None
        if name is not None and name not in names and brief.has_candidate(name):
            yield name


def courses_of(brief: Brief, baseline: Sequence[SeenTrial]) -> list[Course]:
    """Each level's requests as the round sent them, with the lengths that the baseline gave them."""
    found = []
    for level in brief.levels:
        here = [one.records for one in baseline if one.level == level.name]
        if here:
            tokens = lengths_in(here)
            found.append(
                Course(
                    level=level.name,
                    planned=planned_of(here[0], tokens),
                    tokens=tokens,
                    window_s=level.duration_s,
                    drain_s=level.drain_s,
                    warm_up_s=level.warm_up_s,
                    max_concurrency=level.max_concurrency,
                )
            )
    return found


def lengths_in(tables: Sequence[pa.Table]) -> dict[int, tuple[int, int]]:
    """{row: (prompt tokens, output tokens)} of what completed, in the first boot where it did."""
    found: dict[int, tuple[int, int]] = {}
    for table in tables:
        columns = [table[name].to_pylist() for name in ("row", "status", "prompt_tokens", "output_tokens")]
        for row, status, prompt, output in zip(*columns, strict=True):
            if status == "completed" and prompt and output:
                found.setdefault(row, (prompt, output))
    return found


def planned_of(table: pa.Table, tokens: Mapping[int, tuple[int, int]]) -> list[PlannedRequest]:
    """The plan as the records tell it: lengths are known, so the words aren't needed."""
    names = ("request_id", "row", "class", "planned_ns", "give_up_ns", "warm_up")
    return [
        PlannedRequest(request_id, row, stand_in(row, class_, tokens[row][1]), planned_ns, give_up_ns, warm_up)
        for request_id, row, class_, planned_ns, give_up_ns, warm_up in zip(
            *(table[name].to_pylist() for name in names), strict=True
        )
        if row in tokens
    ]


def stand_in(row: int, class_: str, output_tokens: int) -> Row:
    return Row.model_validate(
        {
            "id": str(row),
            "conversation": str(row),
            "arrival_s": 0,
            "class": class_,
            "messages": [{"role": "user", "content": "-"}],
            "max_tokens": output_tokens,
        }
    )


def limits_of(brief: Brief, trials: Sequence[SeenTrial]) -> Limits | None:
    """None where the engine told no size of its KV cache."""
    arguments = brief.baseline.arguments
    sizes: dict[str, list[int]] = {}
    for one in trials:
        if one.kv_tokens is not None:
            setting = setting_of(brief, one.candidate)
            sizes.setdefault(drafter_of(setting) if setting else NONE, []).append(one.kv_tokens)
    if NONE not in sizes:
        return None
    size = min(sizes[NONE])
    batched = max(BATCHED_TOKENS, arguments.max_num_seqs)
    return Limits(
        max_num_seqs=arguments.max_num_seqs,
        max_num_batched_tokens=arguments.max_num_batched_tokens or batched,
        max_model_len=min(arguments.max_model_len, size),
        block_size=arguments.block_size or BLOCK_SIZE,
        kv_tokens=size,
        kv_tokens_lost={name: max(0, size - min(found)) for name, found in sizes.items() if name != NONE},
    )


def predicted(
    brief: Brief, model: CostModel, limits: Limits | None, courses: Sequence[Course], names: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Of every candidate whose drafter was measured, the effect for every goal that a rehearsal tells of."""
    courses = within_reach(courses, arms=1 + len(names))
    if limits is None or not courses:
        return {}
    asked = aims(brief)
    baseline = rehearsed(brief, model, limits, courses, None, asked)
    found = {}
    for name in names:
        own = rehearsed(brief, model, limits, courses, name, asked)
        effects = {aim.name: aim.effect(baseline.get(aim.name), own[aim.name]) for aim in asked if aim.name in own}
        # A candidate that is expected never to get there is no stranger: a bound keeps it, and can be written as JSON.
        found[name] = {goal: known for goal, one in effects.items() if (known := bounded(one)) is not None}
    return {name: effects for name, effects in found.items() if effects}


def within_reach(courses: Sequence[Course], *, arms: int) -> list[Course]:
    """The courses, shortened alike so that ``arms`` of them can be rehearsed; none where too little would be left."""
    windows = sum(one.window_s for one in courses) * arms
    beside = sum(one.span_s for one in courses) * arms - windows
    share = min(1.0, (MOST_REHEARSED_S - beside) / windows) if windows else 0.0
    if share == 1.0:
        return list(courses)
    return [one.shortened(share) for one in courses] if share >= LEAST_SHARE else []


def rehearsed(
    brief: Brief, model: CostModel, limits: Limits, courses: Sequence[Course], name: str | None, asked: Sequence[Aim]
) -> dict[str, float]:
    """{goal: number} of a candidate, or of the baseline (None); empty where its drafter was never measured."""
    setting = setting_of(brief, name)
    try:
        trials = rehearse(model, limits, setting, courses)
    except ValueError:
        return {}
    lost = limits.kv_tokens_lost.get(drafter_of(setting), 0) if setting else 0
    found: dict[str, float] = {}
    for course, trial in zip(courses, trials, strict=True):
        told = as_evidence(brief, name, course, trial, limits.kv_tokens - lost)
        for aim in asked:
            if aim.cell.level == course.level:
                number = value(aim.measure, told, aim.cell.class_, brief)
                found |= {} if number is None else {aim.name: number}
    return found


def as_evidence(brief: Brief, name: str | None, course: Course, trial: SimulatedTrial, kv_tokens: int) -> TrialEvidence:
    """A rehearsed trial in the form in which trials are measured; it is never stored as one."""
    table = records_table(trial.records).select([*COLUMNS])
    columns, warm_up = window_and_warm_up(columns_of(table))
    return TrialEvidence(
        trial="rehearsed",
        boot="rehearsed",
        server="rehearsed",
        purpose="tuning",
        pair=None,
        arm="candidate" if name else "baseline",
        candidate=name,
        level=course.level,
        evidence_class="simulated",
        configuration=brief.configuration(name or "baseline").digest,
        planned=len(columns["row"]),
        window_s=course.window_s,
        columns=columns,
        engine_tokens=None,
        prefix_queries=None,
        prefix_hits=None,
        kv_cache_tokens=kv_tokens,
        boot_started_ns=0,
        boot_stopped_ns=0,
        neighbour_cpu_share=None,
        warm_up_planned=0,
        warm_up_completed=0,
        died=False,
        window_start_ns=round(course.warm_up_s * NANOSECONDS),
        warm_up_columns=warm_up,
        preemptions=round(trial.counters.get("vllm:num_preemptions_total", 0.0)),
    )
