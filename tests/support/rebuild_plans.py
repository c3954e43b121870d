"""Plans a held-out campaign of every kind of level and prints the digests of its plan and of its trials' plans."""

import sys

from loadtests.canonical import digest, digest_of
from loadtests.demo import SUPPORT_ASSISTANT
from loadtests.planning import plan_boots, plan_document
from loadtests.traffic.levels import Level
from loadtests.traffic.plan import plan_level
from loadtests.traffic.planned import plan_content
from loadtests.traffic.rows import NANOSECONDS, read_rows

STRETCHES = [[0, 2_400 * NANOSECONDS], [3_000 * NANOSECONDS, 7_200 * NANOSECONDS]]
LEVELS = [
    Level.model_validate({"name": name, "arrival": arrival, "duration_s": 15, "warm_up_s": 3} | more)
    for name, arrival, more in (
        ("constant", {"process": "constant", "rate": 0.3}, {}),
        ("gamma", {"process": "gamma", "rate": 0.5, "cv": 1.7}, {"max_concurrency": 4}),
        ("bursts", {"process": "on-off", "rate": 2, "on_s": 2, "off_s": 4, "rate_off": 0.1}, {}),
        ("ramp", {"process": "ramp", "rate": 0.2, "rate_to": 1}, {"patience": {"share": 0.5, "after_s": 3}}),
        (
            "replayed",
            {"process": "replay", "time_scale": 0.1},
            {"patience": {"share": 0.3, "after_s": 5, "spread": "exponential"}},
        ),
    )
]


def digests() -> list[str]:
    rows = list(read_rows(SUPPORT_ASSISTANT))
    boots = plan_boots(
        "held-out",
        baseline="a" * 64,
        candidates={"ngram-k4": "b" * 64},
        rows=rows,
        levels=LEVELS,
        peak="replayed",
        pairs=4,
        seed=5,
        stretches=STRETCHES,
    )
    document = plan_document(
        "held-out", brief="c" * 64, part="d" * 64, levels=LEVELS, deadlines={}, seed=5, boots=boots
    )
    levels = {level.name: level for level in LEVELS}
    trials = [
        plan_content(
            plan_level(
                [(index, rows[index]) for index in trial.segment.rows],
                levels[trial.level],
                seed=trial.segment.seed,
                prefix="t",
            ),
            levels[trial.level],
        )
        for boot in boots
        for trial in boot.trials
    ]
    return [digest_of(document), *map(digest, trials)]


if __name__ == "__main__":
    sys.stdout.write("\n".join(digests()))
