"""Whether a traffic set may carry a decision, and what speaks against it: judged by what its import said of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loadtests.traffic.division import FURTHEST_FROM_SHARE

# More than this share is said in the first line of a set's page: the load is another one.
MUCH = 0.1

Document = Mapping[str, Any]


@dataclass(frozen=True)
class Reason:
    """``clause`` follows "because" or "but"; ``cost`` is a sentence on what it costs and what to do, or empty."""

    clause: str
    cost: str = ""


@dataclass(frozen=True)
class Standing:
    """``against`` rules every decision out; ``cautions`` are what a decision has to be read with."""

    against: tuple[Reason, ...] = ()
    cautions: tuple[Reason, ...] = ()

    @property
    def word(self) -> str:
        if self.against:
            return "no"
        return "yes, but" if self.cautions else "yes"

    @property
    def reasons(self) -> tuple[Reason, ...]:
        return self.against or self.cautions

    @property
    def sentence(self) -> str:
        said = listed([one.clause for one in self.reasons])
        if self.against:
            return f"May carry a decision: no, because {said}."
        if len(self.cautions) > 1:
            return f"May carry a decision: yes, with {len(self.cautions)} cautions."
        return f"May carry a decision: {self.word}{f' {said}' if said else ''}."


def standing(
    *, imported: Document, split: Document, statistics: Document, text_deleted: bool, read_for: Sequence[str] = ()
) -> Standing:
    """``read_for`` are the routes for which the held-out requests have been read."""
    return Standing(
        tuple(ruled_out(imported, text_deleted=text_deleted)),
        tuple(
            found
            for found in (
                few_texts(imported),
                left_out(imported, statistics),
                foreign(split),
                unlike(statistics),
                missed(split),
                untimed(statistics),
                made_up_limits(imported, statistics),
                read_before(read_for),
                import_said(imported),
            )
            if found
        ),
    )


def ruled_out(imported: Document, *, text_deleted: bool) -> Iterator[Reason]:
    if text_deleted:
        yield Reason("its text was deleted", "No trial can send it again.")
    if not imported.get("acceptance", {}).get("usable", True):
        yield Reason(
            "it holds lengths without text",
            "How many draft tokens are accepted depends on the text. Import the file again and choose a file of real "
            "text under “Text for a trace of lengths”.",
        )


def few_texts(imported: Document) -> Reason | None:
    join = imported.get("join") or {}
    texts = join.get("texts", join.get("donors_used", 0))
    rows = join.get("rows") or rows_kept(imported)
    if not texts or texts >= rows:
        return None
    several = f"{texts:,} text{'s' * (texts > 1)}"
    return Reason(
        f"its {rows:,} requests carry {texts:,} different text{'s' * (texts > 1)}",
        f"Acceptance and prefix-cache hits will be those of {several}. A donor with more texts helps.",
    )


def rows_kept(imported: Document) -> int:
    return int(imported.get("rows") or 0)


def rows_left_out(imported: Document) -> int:
    """Of the file itself; a donor's rows are no load."""
    said = imported.get("left_out") or {}
    return int(said.get("rows", sum((imported.get("skipped") or {}).values())))


def much_left_out(imported: Document) -> bool:
    return rows_left_out(imported) > MUCH * (rows_kept(imported) + rows_left_out(imported))


def left_out(imported: Document, statistics: Document) -> Reason | None:
    if not much_left_out(imported):
        return None
    kept, gone = rows_kept(imported), rows_left_out(imported)
    other = percent(kept / (kept + gone))
    timed = statistics.get("timed", True)
    return Reason(
        f"{gone:,} of {kept + gone:,} requests ({percent(gone / (kept + gone))}) were left out",
        f"A replay plays the other {other} of the load." if timed else f"Levels draw from the other {other}.",
    )


def foreign(split: Document) -> Reason | None:
    share = split.get("foreign_share") or 0
    if share <= MUCH:
        return None
    return Reason(
        f"{percent(share)} of its requests arrive in another part’s time",
        "A replay leaves those out. A level that draws its arrivals uses them all.",
    )


def unlike(statistics: Document) -> Reason | None:
    comparison = statistics.get("comparison") or {}
    resembles = comparison.get("resembles", True)
    if resembles:
        return None
    if resembles is None:
        return Reason(
            f"its parts have too few {comparison['dealt']} to tell whether held-out resembles tuning",
            "What is tuned on one may not hold on the other. More traffic would tell, and shorter blocks may.",
        )
    names = [one["name"] for one in comparison.get("measures", ()) if one["differs"]]
    return Reason(
        f"held-out doesn’t resemble tuning{f' in {listed(names)}' if names else ''}",
        "What is tuned on one may not hold on the other. Try another seed or shorter blocks.",
    )


def missed(split: Document) -> Reason | None:
    achieved = split.get("achieved") or {}
    far = [
        f"{kind} has {percent(achieved[kind])} of the requests, not {percent(share)}"
        for kind, share in (split.get("shares") or {}).items()
        if kind in achieved and abs(achieved[kind] - share) > FURTHEST_FROM_SHARE
    ]
    return Reason(listed(far), "Why is said under “Parts”.") if far else None


def untimed(statistics: Document) -> Reason | None:
    if statistics.get("timed", True):
        return None
    return Reason(
        "its times of arrival were never recorded",
        "Levels have to draw their arrivals: none can be a replay.",
    )


def made_up_limits(imported: Document, statistics: Document) -> Reason | None:
    limit = imported.get("output_limit") or {}
    count, default = limit.get("rows") or 0, limit.get("default")
    rows = statistics.get("count") or rows_kept(imported)
    if not default or count <= MUCH * rows:
        return None
    which = "every output limit is" if count >= rows else f"{count:,} of {rows:,} output limits are"
    return Reason(
        f"{which} the default of {default:,} tokens",
        "How long answers may get is the import’s choice, not a record.",
    )


def read_before(routes: Sequence[str]) -> Reason | None:
    if not routes:
        return None
    return Reason(
        f"its held-out part was already read for {listed(list(dict.fromkeys(routes)))}",
        "What was read once is no test for a later brief of the same route.",
    )


def import_said(imported: Document) -> Reason | None:
    """The import's own caution, where nothing above says as much."""
    caution = str((imported.get("acceptance") or {}).get("caution") or "")
    if not caution or few_texts(imported) or much_left_out(imported):
        return None
    return Reason("the import has a caution", caution)


def percent(share: float) -> str:
    """Whole percents; a share that is neither nothing nor everything is never written as either."""
    whole = 100 * share
    return f"{whole:.1f} %" if 0 < whole < 1 or 99 < whole < 100 else f"{whole:.0f} %"


def listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))
