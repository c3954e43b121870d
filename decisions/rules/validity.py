"""May these measurements be judged at all? One check per row; False makes the verdict INVALID (design §6)."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from decisions.rules.brief import Brief
from decisions.rules.comparison import Pair, pairs_at
from decisions.rules.evidence import (
    MISSING,
    UNKNOWN_SERVER,
    Array,
    Bools,
    ByRow,
    TrialEvidence,
    by_row,
    classes_of,
    in_class,
    matched,
    with_status,
)
from decisions.rules.noise_floor import FAMILY_WISE, FEWEST_PAIRS, control_difference, control_pairs
from decisions.rules.wording import at, capitalised, confidence, counted, share, signed
from loadtests.statistics.order import A_A_ARMS, ARMS, arm_orders
from loadtests.statistics.pairs import t_bounds
from loadtests.statistics.quantiles import quantile

LAG_QUANTILE = 0.99
OUTPUT_LENGTH_LIMIT = 0.10
PREFIX_LIMIT = 0.05
NEIGHBOUR_LIMIT = 0.10
# Of a held-out pair's requests, those that may come in another pair too: pairs that share more aren't independent.
SHARED_LIMIT = 0.10
MOST_NAMED = 4
SMALLEST_SE = 1e-6
NS_PER_MS = 1_000_000


@dataclass(frozen=True)
class Check:
    """``ok`` None: the evidence doesn't tell, or not clearly enough. It rules out PASS and doesn't make INVALID."""

    id: str
    ok: bool | None
    sentence: str
    number: float | None = None
    limit: float | None = None
    unit: str = ""
    settles: str = ""

    @property
    def document(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "ok": self.ok,
            "sentence": self.sentence,
            "number": self.number,
            "limit": self.limit,
            "unit": self.unit,
        }


def checks(brief: Brief, nominee: str | None, trials: Sequence[TrialEvidence], *, later: bool) -> list[Check]:
    """Every check, over the trials the verdict rests on: noise floor and held-out, or tuning for no nominee.

    ``later``: by the rules from verdict/2 on. The arms' requests must agree in their classes too, and a pair whose
    prefix cache isn't told, completed responses whose tokens aren't, or a share of the machine that can't be one, leave
    their check open. So do fewer A/A pairs than planned, and more are evidence that nobody planned. Each held-out pair
    has requests of its own.
    """
    judged = [one for one in trials if one.purpose in ("held-out" if nominee else "tuning", "noise-floor")]
    control = no_control_difference(brief, judged)
    found = [
        issued(judged),
        client_lag(judged, brief),
        fingerprints(judged, brief, nominee),
        warm_up(judged),
        tokens_told(engine_tokens(judged), judged) if later else engine_tokens(judged),
        neighbours(judged, later=later),
        same_requests(judged, brief, ASKED if later else FIRST_ASKED),
        fresh_servers(judged),
        arm_order(judged, brief),
        controls_as_planned(control, judged, brief) if later else control,
    ]
    if nominee is None:
        return found
    held_out = held_out_pairs(brief, judged)
    cached = prefix_cache(held_out, brief, later=later)
    return [*found, output_length(held_out, brief), cached, enough_pairs(judged, brief, later=later)]


def held_out_pairs(brief: Brief, trials: Iterable[TrialEvidence]) -> dict[str, list[Pair]]:
    chosen = [one for one in trials if one.purpose == "held-out"]
    return {level.name: pairs_at(chosen, level.name, other="candidate") for level in brief.levels}


def place(trial: TrialEvidence) -> str:
    pair = "" if trial.pair is None else f" of {place_of(trial, trial.pair)}"
    return f"{trial.purpose} trial {trial.trial} ({trial.arm} at {trial.level}{pair})"


def place_of(trial: TrialEvidence, number: int) -> str:
    """Rounds of tuning count from 1; pairs, and what tuning had before there were rounds, from 0."""
    return f"round {number}" if trial.purpose == "tuning" and number else f"pair {number + 1}"


def issued(trials: Sequence[TrialEvidence]) -> Check:
    gaps = [gap for trial in trials for gap in issue_gaps(trial)]
    planned = sum(trial.planned for trial in trials)
    if not planned:
        said = "There is no request to judge."
        return Check("issued", None, said, None, 0, "requests", "Trials with requests.")
    if not gaps:
        return Check("issued", True, f"All {planned:,} requests planned were issued, in every class.", 0, 0, "requests")
    missing = sum(abs(number) for number, _ in gaps)
    return Check("issued", False, f"Planned and issued requests differ: {gaps[0][1]}.", missing, 0, "requests")


def issue_gaps(trial: TrialEvidence) -> list[tuple[int, str]]:
    recorded = len(trial.columns["row"])
    if recorded != trial.planned:
        return [(trial.planned - recorded, f"{place(trial)} planned {trial.planned} and recorded {recorded}")]
    if trial.died:  # what a dead server never got is its own result
        return []
    unsent = with_status(trial, "not_sent")
    counts = [(int((unsent & in_class(trial, name)).sum()), name) for name in classes_of(trial)]
    return [(count, f"{place(trial)} never sent {count} of class {name}") for count, name in counts if count]


def client_lag(trials: Sequence[TrialEvidence], brief: Brief) -> Check:
    """The client keeps its times; and what fails is the server's doing, never the client's own."""
    limit = brief.rule.max_client_lag_ms
    if faulty := [trial for trial in trials if trial.client_faults]:
        said = f"Requests failed by the client's own fault in {place(faulty[0])}: {faulty[0].client_faults[0]}."
        return Check("client-lag", False, said, None, limit, "ms")
    lags = [(lag, trial) for trial in trials if (lag := lag_p99_ms(trial)) is not None]
    if not lags:
        said = "The client's own lag is not known: no request was sent."
        return Check("client-lag", None, said, None, limit, "ms", "Trials in which requests were sent.")
    worst, trial = max(lags, key=lambda one: one[0])
    most = "at most " if worst <= limit else ""
    said = f"The client's own lag was {most}{worst:.1f} ms at p99 (limit {limit:g} ms), in {place(trial)}."
    return Check("client-lag", worst <= limit, said, worst, limit, "ms")


def lag_p99_ms(trial: TrialEvidence) -> float | None:
    """Sent − due, where records without a due time were due as planned."""
    sent, planned = trial.columns["sent_ns"], trial.columns["planned_ns"]
    known = trial.columns.get("due_ns", planned)
    due, left = np.where(known == MISSING, planned, known), sent != MISSING
    return quantile((sent - due)[left] / NS_PER_MS, LAG_QUANTILE) if left.any() else None


def all_pairs(trials: Iterable[TrialEvidence], brief: Brief) -> list[Pair]:
    trials = list(trials)
    found: list[Pair] = []
    for purpose, other in (("held-out", ARMS[1]), ("noise-floor", A_A_ARMS[1])):
        chosen = [one for one in trials if one.purpose == purpose]
        found += [pair for level in brief.levels for pair in pairs_at(chosen, level.name, other=other)]
    return found


FIRST_ASKED = ("row", "prompt_sha256", "planned_ns")
# The class has its own deadline: the same prompt in another class is another request.
ASKED = (*FIRST_ASKED, "class")


def same_requests(trials: Sequence[TrialEvidence], brief: Brief, asked: Sequence[str] = ASKED) -> Check:
    pairs = all_pairs(trials, brief)
    different = [pair for pair in pairs if not got_the_same(pair, asked)]
    if different:
        said = f"The arms got different requests: {place(different[0].baseline)} against {place(different[0].other)}."
        return Check("same-requests", False, said, len(different), 0, "pairs of trials")
    said = f"Both arms got the same requests at the same times in all {len(pairs)} pairs of trials."
    return Check("same-requests", True, said, 0, 0, "pairs of trials")


def got_the_same(pair: Pair, asked: Sequence[str] = ASKED) -> bool:
    """Whatever the order in which they were written; that of the plan, as a rule, in both."""
    columns = [(pair.baseline.with_warm_up(one), pair.other.with_warm_up(one)) for one in asked]
    same_order = all(len(left) == len(right) and bool((left == right).all()) for left, right in columns)
    return same_order or requests_of(pair.baseline, asked) == requests_of(pair.other, asked)


def requests_of(trial: TrialEvidence, asked: Sequence[str]) -> list[tuple[str, ...]]:
    columns = [trial.with_warm_up(one).tolist() for one in asked]
    return sorted(tuple(map(str, one)) for one in zip(*columns, strict=True))


Place = tuple[str, int, str]


def by_arm(trials: Iterable[TrialEvidence]) -> dict[Place, list[TrialEvidence]]:
    arms: dict[Place, list[TrialEvidence]] = {}
    for trial in sorted(trials, key=lambda one: one.order):
        if trial.pair is not None and trial.purpose in ("held-out", "noise-floor"):
            arms.setdefault((trial.purpose, trial.pair, trial.arm), []).append(trial)
    return arms


def fresh_servers(trials: Sequence[TrialEvidence]) -> Check:
    arms = by_arm(trials)
    faults = [*mixed_boots(arms), *shared_servers(arms), *overlapping(arms)]
    if faults:
        return Check("fresh-server", False, faults[0], len(faults), 0, "faults")
    said = (
        f"Each of {counted(len(arms), 'arm')} of a pair had a server of its own, started after the other had stopped."
    )
    return Check("fresh-server", True, said, 0, 0, "faults")


def identified(check: Check, trials: Sequence[TrialEvidence]) -> Check:
    """Servers that nobody identified can't be shown to be fresh (from verdict/2 on)."""
    unknown = {one.server for one in trials if not told_server(one)}
    if check.id != "fresh-server" or not check.ok or not unknown:
        return check
    said = f"Whether each arm had a fresh server is not known: {counted(len(unknown), 'server')} told no identity."
    return Check("fresh-server", None, said, None, 0, "faults", f"The missing figures: {said}")


def arm_name(place_: Place) -> str:
    return f"the {place_[2]} of {place_[0]} pair {place_[1] + 1}"


def mixed_boots(arms: Mapping[Place, Sequence[TrialEvidence]]) -> list[str]:
    return [f"More than one boot served {arm_name(one)}." for one, trials in arms.items() if several_boots(trials)]


def several_boots(trials: Sequence[TrialEvidence]) -> bool:
    """A trial that doesn't tell its server is for ``identified``."""
    return len({one.boot for one in trials}) > 1 or len({one.server for one in trials if told_server(one)}) > 1


def told_server(trial: TrialEvidence) -> bool:
    return not trial.server.startswith(UNKNOWN_SERVER)


def shared_servers(arms: Mapping[Place, Sequence[TrialEvidence]]) -> list[str]:
    users: dict[str, list[Place]] = {}
    for one, trials in arms.items():
        for server in sorted({trial.server for trial in trials}):
            users.setdefault(server, []).append(one)
    return [
        f"One server was used for {arm_name(places[0])} and for {arm_name(places[1])}."
        for places in users.values()
        if len(places) > 1
    ]


def overlapping(arms: Mapping[Place, Sequence[TrialEvidence]]) -> list[str]:
    return [
        f"The servers of {purpose} pair {number + 1} ran at the same time."
        for (purpose, number), (first, second) in boots_in_order(arms).items()
        if second.boot_started_ns < first.boot_stopped_ns
    ]


def boots_in_order(
    arms: Mapping[Place, Sequence[TrialEvidence]],
) -> dict[tuple[str, int], tuple[TrialEvidence, TrialEvidence]]:
    """One trial of either arm of every pair that has both, in the order in which their boots started."""
    pairs: dict[tuple[str, int], list[TrialEvidence]] = {}
    for (purpose, pair, _), trials in arms.items():
        pairs.setdefault((purpose, pair), []).append(trials[0])
    ordered = {key: sorted(both, key=lambda one: (one.boot_started_ns, one.arm)) for key, both in pairs.items()}
    return {key: (both[0], both[1]) for key, both in ordered.items() if len(both) == 2}


def arm_order_drawn(brief: Brief) -> dict[str, list[tuple[str, str]]]:
    return {
        "held-out": arm_orders(brief.rule.pairs, brief.rule.seed),
        "noise-floor": arm_orders(brief.rule.noise_floor_pairs, brief.rule.seed, arms=A_A_ARMS),
    }


def arm_order(trials: Sequence[TrialEvidence], brief: Brief) -> Check:
    drawn = arm_order_drawn(brief)
    run = boots_in_order(by_arm(trials))
    wrong = [
        f"{purpose} pair {number + 1} ran {first.arm} before {second.arm}; the seed drew the other order."
        for (purpose, number), (first, second) in run.items()
        if number < len(drawn[purpose]) and drawn[purpose][number] != (first.arm, second.arm)
    ]
    if wrong:
        return Check("arm-order", False, capitalised(wrong[0]), len(wrong), 0, "pairs")
    return Check("arm-order", True, f"The arms ran in the order that was drawn in all {len(run)} pairs.", 0, 0, "pairs")


def fingerprints(trials: Sequence[TrialEvidence], brief: Brief, nominee: str | None) -> Check:
    wrong = 0
    first = ""
    # A configuration's digest takes its time, and few configurations have many trials.
    expected: dict[tuple[str, str, str | None], str | None] = {}
    for trial in trials:
        kind = trial.purpose, trial.arm, trial.candidate
        if kind not in expected:
            expected[kind] = expected_configuration(trial, brief, nominee)
        if trial.configuration != expected[kind]:
            said = f"{place(trial)} ran a configuration that the brief doesn't name for it."
            return Check("fingerprint", False, capitalised(said), 1, 0, "trials")
        completed = with_status(trial, "completed")
        strange = int((trial.columns["fingerprint"][completed] != trial.configuration).sum())
        first = first or (place(trial) if strange else "")
        wrong += strange
    if wrong:
        said = f"{counted(wrong, 'completed response')} carried another fingerprint than planned, first in {first}."
        return Check("fingerprint", False, said, wrong, 0, "responses")
    said = "Every completed response carried the digest of the planned configuration."
    return Check("fingerprint", True, said, 0, 0, "responses")


def expected_configuration(trial: TrialEvidence, brief: Brief, nominee: str | None) -> str | None:
    if trial.arm != ARMS[1]:
        return brief.baseline.digest
    wanted = nominee if trial.purpose == "held-out" else trial.candidate
    if wanted is None or trial.candidate not in (None, wanted) or not brief.has_candidate(wanted):
        return None
    return brief.configuration(wanted).digest


def warm_up(trials: Sequence[TrialEvidence]) -> Check:
    short = [one for one in trials if not one.died and one.warm_up_completed != one.warm_up_planned]
    if short:
        one = short[0]
        said = f"{place(one)} completed {one.warm_up_completed} of {one.warm_up_planned} warm-up requests."
        return Check("warm-up", False, capitalised(said), len(short), 0, "trials")
    return Check("warm-up", True, "Warm-up ran as planned and is in no figure.", 0, 0, "trials")


def engine_tokens(trials: Sequence[TrialEvidence]) -> Check:
    alive = [one for one in trials if not one.died]
    unknown = [one for one in alive if one.engine_tokens is None]
    gaps = [(token_gap(one), one) for one in alive if one.engine_tokens is not None]
    wrong = [(gap, one) for gap, one in gaps if gap < 0 or (gap and counts_exactly(one))]
    if wrong:
        gap, one = max(wrong, key=lambda found: abs(found[0]))
        said = f"The engine counted {signed(gap, 0)} tokens against the sum of the responses in {place(one)}."
        return Check("engine-tokens", False, said, gap, 0, "tokens")
    if unknown:
        said = (
            f"The engine's token counter is missing in {counted(len(unknown), 'trial')}, first in {place(unknown[0])}."
        )
        return Check("engine-tokens", None, said, None, 0, "tokens", f"The missing figures: {said}")
    exact = sum(counts_exactly(one) for one in alive)
    said = f"The engine's token counter equals the sum of the responses in {counted(exact, 'trial')}"
    if exact < len(alive):
        said += f"; in {len(alive) - exact}, where requests were cut off or ended by a stop string, it is at least that"
    largest = max((gap for gap, one in gaps if counts_exactly(one)), default=0)
    return Check("engine-tokens", True, f"{said}.", largest, 0, "tokens")


def tokens_told(check: Check, trials: Sequence[TrialEvidence]) -> Check:
    """A counter can't be held against responses of which some told no number of tokens (from verdict/2 on)."""
    untold = [(count, one) for one in trials if not one.died and (count := int(untold_tokens(one).sum()))]
    if not check.ok or not untold:
        return check
    number, first = sum(count for count, _ in untold), untold[0][1]
    said = f"{counted(number, 'completed response')} told no number of tokens, first in {place(first)}."
    return replace(check, ok=None, number=None, sentence=said, settles=f"The missing figures: {said}")


def untold_tokens(trial: TrialEvidence) -> Bools:
    untold = trial.with_warm_up("output_tokens") == MISSING
    return np.asarray(untold & (trial.with_warm_up("status") == "completed"), dtype=bool)


def token_gap(trial: TrialEvidence) -> int:
    """The engine's counter − the sum of the responses. It counts the level's warm-up too."""
    tokens = trial.with_warm_up("output_tokens")
    return int(trial.engine_tokens or 0) - int(tokens[tokens != MISSING].sum())


def counts_exactly(trial: TrialEvidence) -> bool:
    """Were all tokens the engine made returned to us? Not where a request was cut off, or ended by a stop string: its
    last tokens are dropped, and the engine then leaves out that request's own metrics, by which we know it."""
    if not bool((trial.with_warm_up("status") == "completed").all()):
        return False
    unknown = trial.with_warm_up("output_tokens") == MISSING
    return not unknown.any() and not stopped_by_string(trial)


def stopped_by_string(trial: TrialEvidence) -> bool:
    if "finish_reason" not in trial.columns or "server_decode_ms" not in trial.columns:
        return False
    stopped = trial.with_warm_up("finish_reason") == "stop"
    return bool((stopped & np.isnan(trial.with_warm_up("server_decode_ms"))).any())


def neighbour_share(trial: TrialEvidence) -> float | None:
    """None where nobody told it, or what was told is negative or no number: that says nothing, least of all quiet."""
    told = trial.neighbour_cpu_share
    return told if told is not None and told >= 0 else None


def neighbours(trials: Sequence[TrialEvidence], *, later: bool) -> Check:
    told = [(neighbour_share(one) if later else one.neighbour_cpu_share, one) for one in trials]
    unknown = [one for found, one in told if found is None and not one.died]
    shares = [(found, one) for found, one in told if found is not None]
    worst, where = max(shares, key=lambda one: one[0], default=(0.0, None))
    if where is not None and worst > NEIGHBOUR_LIMIT:
        said = f"Something else took {share(worst)} of the machine (limit {share(NEIGHBOUR_LIMIT)}) in {place(where)}."
        return Check("neighbours", False, said, worst, NEIGHBOUR_LIMIT, "share")
    if unknown or where is None:
        known = f"{len(unknown)} of {counted(len(trials), 'trial')}"
        said = f"Whether something else ran on the machine is not known for {known}."
        return Check("neighbours", None, said, None, NEIGHBOUR_LIMIT, "share", f"The missing figures: {said}")
    said = f"Nothing else took more than {share(worst)} of the machine (limit {share(NEIGHBOUR_LIMIT)})."
    return Check("neighbours", True, said, worst, NEIGHBOUR_LIMIT, "share")


def no_control_difference(brief: Brief, trials: Sequence[TrialEvidence]) -> Check:
    p_value, cell, pairs = control_difference(brief, trials)
    if p_value is None or cell is None:
        said = f"Baseline against baseline has {counted(pairs, 'complete pair')}; it takes at least {FEWEST_PAIRS}."
        return Check("control", None, said, None, FAMILY_WISE, "p-value", f"More A/A pairs: {said}")
    shown = p_value <= FAMILY_WISE
    said = f"Baseline against baseline {'shows a' if shown else 'shows no'} difference over {pairs} pairs"
    said += f" (smallest adjusted p-value {p_value:.3g} {at(cell)}, limit {FAMILY_WISE:g})."
    return Check("control", not shown, said, p_value, FAMILY_WISE, "p-value")


def controls_as_planned(control: Check, trials: Sequence[TrialEvidence], brief: Brief) -> Check:
    """A difference that is shown, or too few pairs to look for one, is said first."""
    floor = [one for one in trials if one.purpose == "noise-floor"]
    planned, complete = brief.rule.noise_floor_pairs, at_every_level(control_pairs(brief, floor))
    missing = missing_said(floor, brief, A_A_ARMS, planned)
    if control.ok is False:
        return control
    if strange := unplanned(floor, planned):
        said = f"Noise-floor trials that the brief didn't plan are among the evidence: {strange}."
        return Check("control", False, said, complete, planned, "pairs")
    if control.ok is None:
        said = f"{control.sentence.removesuffix('.')}{missing}."
        return replace(control, sentence=said, settles=f"More A/A pairs: {said}")
    if complete == planned:
        return with_shared(control, floor)
    said = f"{complete} of {planned} planned A/A pairs are complete, at every level{missing}."
    return Check("control", None, said, complete, planned, "pairs", f"The rest of the planned A/A pairs: {said}")


def with_shared(control: Check, floor: Sequence[TrialEvidence]) -> Check:
    """Said, and no fault: a campaign goes through a short tuning part again, and what a baseline does against itself
    can be seen all the same."""
    most = max(shared_requests(floor), default=None)
    if most is None or most.share <= SHARED_LIMIT:
        return control
    said = f"{share(most.share)} of the requests of pair {most.pair + 1} came in another one too: "
    said += "such pairs may differ by less than held-out ones."
    return replace(control, sentence=f"{control.sentence} {said}")


def judged_within(id_: str, what: str, unit: str, values: Sequence[float], limit: float, alpha: float) -> Check:
    """Three answers by the interval over pairs: inside ±limit, shown outside, or not clear."""
    if len(values) < 2:
        said = f"{what} is not known: it takes two pairs."
        return Check(id_, None, said, None, limit, "share", f"More pairs: {said}")
    bounds = t_bounds(values, alpha=alpha, smallest_se=SMALLEST_SE)
    inside = -limit <= bounds.low and bounds.high <= limit
    outside = bounds.high < -limit or bounds.low > limit
    answer = "is within" if inside else "is outside" if outside else "is not shown to be within"
    said = f"{what} {answer} ±{100 * limit:.0f} {unit}: {signed(100 * bounds.mean)} "
    said += f"({confidence(1 - 2 * alpha)} interval {signed(100 * bounds.low)} to {signed(100 * bounds.high)})."
    ok = True if inside else False if outside else None
    return Check(id_, ok, said, bounds.mean, limit, "share", "" if ok else f"More pairs: {said}")


def output_length(pairs: Mapping[str, Sequence[Pair]], brief: Brief) -> Check:
    """Over all levels of a pair together: what a model writes doesn't depend on the load."""
    ratios: dict[int, list[tuple[int, int]]] = {}
    for pair in all_of(pairs):
        ratios.setdefault(pair.number, []).append(matched_tokens(pair))
    totals = [np.sum(one, axis=0) for _, one in sorted(ratios.items())]
    changes = [float(after / before) - 1 for before, after in totals if before > 0 and after > 0]
    what = "Output length, candidate against baseline,"
    return judged_within("output-length", what, "%", changes, OUTPUT_LENGTH_LIMIT, brief.rule.alpha)


def matched_tokens(pair: Pair) -> tuple[int, int]:
    """Output tokens of the requests that completed in both arms."""
    before, after = matched(tokens_by_row(pair.baseline), tokens_by_row(pair.other))
    return int(before.sum()), int(after.sum())


def tokens_by_row(trial: TrialEvidence) -> ByRow:
    tokens = trial.columns["output_tokens"]
    return by_row(trial, tokens, with_status(trial, "completed") & (tokens != MISSING))


def prefix_cache(pairs: Mapping[str, Sequence[Pair]], brief: Brief, *, later: bool) -> Check:
    if not brief.baseline.arguments.enable_prefix_caching:
        return Check("prefix-cache", True, "Prefix caching is switched off in both arms.", 0, PREFIX_LIMIT, "share")
    totals: dict[int, list[float]] = {}
    for pair in all_of(pairs):
        gap = hit_rate_gap(pair)
        if gap is not None:
            totals.setdefault(pair.number, []).append(gap)
    gaps = [math.fsum(found) / len(found) for _, found in sorted(totals.items())]
    what = "The prefix cache's hit rate, candidate − baseline,"
    found = judged_within("prefix-cache", what, "points", gaps, PREFIX_LIMIT, brief.rule.alpha)
    silent = [one for one in all_of(pairs) if not died(one) and hit_rate_gap(one) is None]
    if not (later and found.ok and silent):
        return found
    said = f"The prefix cache's hit rate is not known in {counted(len(silent), 'pair')} of trials, "
    said += f"first beside {place(silent[0].other)}."
    return replace(found, ok=None, sentence=said, settles=f"The missing figures: {said}")


def all_of(pairs: Mapping[str, Sequence[Pair]]) -> list[Pair]:
    return [one for found in pairs.values() for one in found]


def died(pair: Pair) -> bool:
    return pair.baseline.died or pair.other.died


def hit_rate_gap(pair: Pair) -> float | None:
    """None where an arm's engine died or didn't tell."""
    if died(pair):
        return None
    rates = [hit_rate(one) for one in (pair.baseline, pair.other)]
    return None if rates[0] is None or rates[1] is None else rates[1] - rates[0]


def hit_rate(trial: TrialEvidence) -> float | None:
    if trial.prefix_queries is None or trial.prefix_hits is None:
        return None
    return trial.prefix_hits / trial.prefix_queries if trial.prefix_queries else 0.0


def enough_pairs(trials: Sequence[TrialEvidence], brief: Brief, *, later: bool) -> Check:
    held_out = [one for one in trials if one.purpose == "held-out"]
    complete = complete_pairs(brief, held_out)
    planned = brief.rule.pairs
    if strange := unplanned(held_out, planned):
        said = f"Held-out trials that the brief didn't plan are among the evidence: {strange}."
        return Check("pairs", False, said, complete, planned, "pairs")
    most = max(shared_requests(held_out), default=None) if later else None
    if most is not None and most.share > SHARED_LIMIT:
        said = f"{share(most.share)} of the requests of held-out pair {most.pair + 1} came in another pair too "
        said += f"(limit {share(SHARED_LIMIT)}), most of them in pair {most.other + 1}: each pair has its own."
        return Check("pairs", False, said, most.share, SHARED_LIMIT, "share")
    missing = missing_said(held_out, brief, ARMS, planned) if later else ""
    said = f"{complete} of {planned} planned pairs are complete, at every level{missing}."
    ok = True if complete == planned else None
    return Check("pairs", ok, said, complete, planned, "pairs", "" if ok else f"The rest of the planned pairs: {said}")


def missing_said(trials: Iterable[TrialEvidence], brief: Brief, arms: Sequence[str], planned: int) -> str:
    """ " (missing: pair 3, the candidate at peak of pair 4)"; "" where nothing is missing, or there is nothing yet."""
    there = {(one.pair, one.arm, one.level) for one in trials}
    places = [(arm, level.name) for level in brief.levels for arm in arms]
    lacking = {pair: [one for one in places if (pair, *one) not in there] for pair in range(planned)}
    named = [
        said
        for pair, gone in lacking.items()
        for said in (
            [f"pair {pair + 1}"]
            if len(gone) == len(places)
            else [f"the {arm} at {level} of pair {pair + 1}" for arm, level in gone]
        )
    ]
    more = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
    return f" (missing: {', '.join(named[:MOST_NAMED])}{more})" if there and named else ""


@dataclass(frozen=True, order=True)
class Shared:
    """The share of a pair's requests that came in another pair too, and the pair that has the most of them."""

    share: float
    pair: int
    other: int


def shared_requests(trials: Iterable[TrialEvidence]) -> list[Shared]:
    """One per pair of a purpose that has a request in common with another; requests of a part are told apart by row and
    prompt, for both arms get the same ones."""
    arms: dict[int, list[TrialEvidence]] = {}
    for one in trials:
        if one.pair is not None and one.arm == ARMS[0]:
            arms.setdefault(one.pair, []).append(one)
    if rows_are_apart(arms):
        return []
    owners: dict[tuple[int, Any], set[int]] = {}
    for pair, found in arms.items():
        for row, prompt in zip(over_levels(found, "row"), over_levels(found, "prompt_sha256"), strict=True):
            owners.setdefault((int(row), prompt), set()).add(pair)
    sharing = set().union(*(one for one in owners.values() if len(one) > 1))
    return [shared_by(pair, owners.values()) for pair in sorted(sharing)]


def rows_are_apart(arms: Mapping[int, Sequence[TrialEvidence]]) -> bool:
    """As a campaign plans held-out pairs; then nothing needs to be told apart one by one."""
    rows = [different(over_levels(found, "row")) for found in arms.values()]
    every = np.concatenate(rows) if rows else np.empty(0, dtype=np.int64)
    return len(different(every)) == len(every)


def different(numbers: Array) -> Array:
    """Sorted, for hashing them as ``np.unique`` does takes thirty times as long."""
    ordered = np.sort(numbers)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(ordered) else ordered


def over_levels(trials: Sequence[TrialEvidence], column: str) -> Array:
    return np.concatenate([one.with_warm_up(column) for one in trials])


def shared_by(pair: int, owners: Iterable[set[int]]) -> Shared:
    own = [one for one in owners if pair in one]
    others = Counter(other for one in own for other in one if other != pair)
    other = min(others, key=lambda one: (-others[one], one))
    return Shared(sum(len(one) > 1 for one in own) / len(own), pair, other)


def unplanned(trials: Iterable[TrialEvidence], planned: int) -> str:
    """What there is beyond one trial of every arm and level in each of the planned pairs; "" where nothing is."""
    places = Counter((one.pair, one.arm, one.level) for one in trials)
    surplus = sorted({pair for pair, _, _ in places if pair is None or pair >= planned}, key=str)
    twice = [one for one, count in places.items() if count > 1]
    if surplus:
        return "one without a pair" if surplus[0] is None else f"pair {surplus[0] + 1}"
    if not twice:
        return ""
    pair, arm, level = twice[0]
    return f"two trials of {arm} at {level} in pair {(pair or 0) + 1}"


def complete_pairs(brief: Brief, held_out: Iterable[TrialEvidence]) -> int:
    return at_every_level(held_out_pairs(brief, held_out))


def at_every_level(pairs: Mapping[str, Sequence[Pair]]) -> int:
    return len(set.intersection(*({pair.number for pair in found} for found in pairs.values())))
