"""A trace that gets text is split first, and each part's rows draw from donors of its own."""

import json
import os
import random
import subprocess
import sys
import tempfile
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.conf import settings
from hypothesis import HealthCheck, example, given
from hypothesis import settings as hypothesis
from hypothesis import strategies as st

from loadtests.evidence.store import EvidenceStore
from loadtests.models import TrafficSet
from loadtests.services.import_traffic import SHARES, Found, Split, import_traffic, tell_nobody
from loadtests.traffic.dealing import NOBODY, Deck, dealt
from loadtests.traffic.importers import ImportRefused, Rules, Wanted, import_file
from loadtests.traffic.importers.join import DIVIDED, RULE
from loadtests.traffic.near_duplicates import compared_text, shingle_hashes
from loadtests.traffic.rows import Row, read_rows, rows_of

FRESH = """
import sys
from pathlib import Path
import django
django.setup()
from loadtests.services.import_traffic import SHARES, Found, Split, tell_nobody
from loadtests.traffic.importers import Wanted
trace, donor, scratch = map(Path, sys.argv[1:])
print(Found(Wanted(trace, donor=donor), Split(SHARES, 3, 20.0, 0.8), scratch, tell_nobody).digest)
"""

Donor = tuple[int, int, int]


def words(seed: int, count: int) -> list[str]:
    rng = random.Random(seed)
    return ["".join(rng.choices("abcdefghijklmnop", k=6)) for _ in range(count)]


def prompt(kind: int, copy: int, length: int) -> str:
    """Texts of one kind and length are near copies of each other; the copies 0 are equal."""
    said = words(kind, length)
    if copy:
        said[copy % length] = f"copy{copy}"
    return " ".join(said)


Texts = list[tuple[str, dict[str, Any]]]


def donor_file(place: Path, texts: Texts) -> Path:
    path = place / "donor.jsonl"
    path.write_text("".join(json.dumps({"prompt": text, **more}) + "\n" for text, more in texts))
    return path


def trace_file(place: Path, lengths: list[int], *, gap_s: float = 1.0) -> Path:
    path = place / "trace.jsonl"
    rows = [{"prompt_tokens": one, "max_tokens": 5, "arrival_s": at * gap_s} for at, one in enumerate(lengths)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


class Joined:
    """What a set would be made of, with its parts' rows."""

    def __init__(self, trace: Path, donor: Path, scratch: Path, *, shares: dict[str, float] | None = None, **more: Any):
        wanted = Wanted(trace, donor=donor, **more)
        self.found = Found(wanted, Split(shares or SHARES, 3, 20.0, 0.8), scratch, tell_nobody)
        self.parts = {kind: list(read_rows(scratch / f"{kind}.jsonl")) for kind in self.found.parts}
        self.join = self.found.imported["join"]


def joined(place: Path, trace: Path, donor: Path, **more: Any) -> Joined:
    with tempfile.TemporaryDirectory(dir=place) as scratch:
        return Joined(trace, donor, Path(scratch), **more)


def texts_of(rows: list[Row]) -> set[str]:
    return {row.messages[0].content for row in rows}


def shingles(text: str) -> set[int]:
    return set(shingle_hashes(compared_text([{"role": "user", "content": text}])).tolist())


def likeness(one: set[int], other: set[int]) -> float:
    return len(one & other) / len(one | other)


KINDS_OF_TEXT = st.tuples(st.integers(0, 12), st.integers(0, 3), st.sampled_from([1, 2, 40, 41, 120]))


@hypothesis(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(KINDS_OF_TEXT, min_size=15, max_size=40),
    st.lists(st.sampled_from([2, 3, 60, 70, 71, 210]), min_size=120, max_size=150),
    st.booleans(),
)
@example([(0, 0, 40)] * 3 + [(at, 0, 41) for at in range(9)], [70] * 120, False)
def test_no_text_and_no_near_copy_stands_in_two_parts(
    donors: list[Donor], lengths: list[int], in_conversations: bool
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        more = [{"conversation": f"c{at // 2}"} if in_conversations else {} for at in range(len(donors))]
        donor = donor_file(place, [(prompt(*one), also) for one, also in zip(donors, more, strict=True)])
        try:
            made = joined(place, trace_file(place, lengths), donor)
        except ImportRefused:
            # Too few texts for all parts, which other tests are about.
            return
        held = {kind: texts_of(rows) for kind, rows in made.parts.items()}
        compared = [[shingles(text) for text in texts] for texts in held.values()]
        for one, other in combinations(compared, 2):
            assert all(likeness(text, like) < 0.8 for text in one for like in other)
        conversation = {prompt(*one): also.get("conversation") for one, also in zip(donors, more, strict=True)}
        if in_conversations and len(conversation) == len(donors):
            of_part = [{conversation[text] for text in texts} for texts in held.values()]
            assert all(not one & other for one, other in combinations(of_part, 2))
        document = made.found.division.document
        assert (document["foreign_share"], document["near_duplicates"]["conversations_joined"]) == (0, 0)
        assert sum(map(len, made.parts.values())) == len(made.found.columns) == made.join["rows"]
        left_out = made.found.imported["skipped"].get("no donor text of this length", 0)
        assert sum(made.join["left_out"].values()) == left_out == len(lengths) - made.join["rows"]


@hypothesis(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32), st.integers(9, 30), st.integers(120, 200))
def test_shares_are_kept_within_a_block_however_few_the_donors(seed: int, donors: int, count: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        place, rng = Path(directory), random.Random(seed)
        trace = trace_file(place, [rng.randrange(64, 128) for _ in range(count)])
        donor = donor_file(place, [(prompt(at, 0, 50), {}) for at in range(donors)])
        made = joined(place, trace, donor)
        assert len(made.found.columns) == count
        achieved = made.found.division.document["achieved"]
        # A block of 20 s holds 10 to 30 of the requests, which come one a second.
        assert all(abs(achieved[kind] - share) * count <= 30 for kind, share in SHARES.items())
        assert sum(made.join["divided"].values()) == donors


def test_the_split_is_that_of_the_lengths_and_rows_stay_as_they_are(tmp_path: Path) -> None:
    trace = trace_file(tmp_path, [70 + at % 50 for at in range(120)])
    made = joined(tmp_path, trace, donor_file(tmp_path, [(prompt(at, 0, 50), {}) for at in range(20)]))
    with tempfile.TemporaryDirectory(dir=tmp_path) as scratch:
        lengths = Found(Wanted(trace), Split(SHARES, 3, 20.0, 0.8), Path(scratch), tell_nobody)
    assert made.found.division.stretches == lengths.division.stretches
    assert np.array_equal(made.found.division.part_of, lengths.division.part_of)
    rows = sorted((row for part in made.parts.values() for row in part), key=lambda row: row.arrival_s)
    assert [(row.id, row.conversation, row.arrival_s, row.max_tokens) for row in rows] == [
        (f"r{at + 1:07d}", f"r{at + 1:07d}", at, 5) for at in range(120)
    ]


def test_the_rows_of_a_part_draw_from_its_own_donors_in_turn(tmp_path: Path) -> None:
    trace = trace_file(tmp_path, [70] * 200)
    made = joined(tmp_path, trace, donor_file(tmp_path, [(prompt(at, 0, 50), {}) for at in range(20)]))
    assert made.join["divided"] == {kind: len(texts_of(rows)) for kind, rows in made.parts.items()}
    assert made.join["divided"] == {"tuning": 8, "held-out": 10, "evaluation": 2}
    for kind, rows in made.parts.items():
        own, said = made.join["divided"][kind], [row.messages[0].content for row in rows]
        assert len(set(said[:own])) == own
        assert said[own : 2 * own] == said[:own]
    assert made.join["rule"] == f"{RULE} {DIVIDED}"
    assert made.join["left_out"] == {"tuning": 0, "held-out": 0, "evaluation": 0}
    method = made.found.division.document["near_duplicates"]["method"]
    assert method.startswith("donors were divided among the parts before the join, by: equal messages, or three-word")


def test_a_part_without_a_text_of_a_length_leaves_those_rows_out_and_says_so(tmp_path: Path) -> None:
    texts: Texts = [(prompt(at, 0, 50), {}) for at in range(9)]
    texts += [(prompt(100, copy, 100), {}) for copy in range(3)]
    made = joined(tmp_path, trace_file(tmp_path, [70, 70, 70, 150] * 50), donor_file(tmp_path, texts))
    long = {kind: sum(len(row.messages[0].content) > 500 for row in rows) for kind, rows in made.parts.items()}
    assert long["held-out"] > 0
    assert (long["tuning"], long["evaluation"]) == (0, 0)
    left_out = made.join["left_out"]
    assert left_out == {"tuning": left_out["tuning"], "held-out": 0, "evaluation": left_out["evaluation"]}
    assert made.found.imported["skipped"] == {"no donor text of this length": 50 - long["held-out"]}


def test_the_rows_left_out_are_reported_with_their_part(tmp_path: Path) -> None:
    texts: Texts = [*((prompt(at, 0, 50), {}) for at in range(9)), (prompt(100, 0, 100), {})]
    trace, donor = trace_file(tmp_path, [70, 70, 70, 150] * 50), donor_file(tmp_path, texts)
    with tempfile.TemporaryDirectory(dir=tmp_path) as scratch:
        Joined(trace, donor, Path(scratch))
        problems = [json.loads(line) for line in (Path(scratch) / "set" / "problems.jsonl").open()]
    assert {one["detail"] for one in problems} == {
        "128 to 255 tokens in the tuning part",
        "128 to 255 tokens in the evaluation part",
    }
    assert {(one["file"], one["reason"]) for one in problems} == {("trace.jsonl", "no donor text of this length")}
    assert [one["line"] for one in problems] == sorted(one["line"] for one in problems)


def test_one_text_is_not_enough_for_two_parts(tmp_path: Path) -> None:
    trace = trace_file(tmp_path, [70] * 200)
    donor = donor_file(tmp_path, [(prompt(0, copy, 50), {}) for copy in range(4)])
    with pytest.raises(ImportRefused) as refused:
        joined(tmp_path, trace, donor)
    assert str(refused.value) == (
        "no text is left for tuning, evaluation: of the lengths that the trace asks for, donor.jsonl has 1 different "
        "text (those nearly alike count as one), and no text may stand in two of the 3 parts; take a larger donor, or "
        "fewer parts"
    )


def test_fewer_parts_need_fewer_texts(tmp_path: Path) -> None:
    trace = trace_file(tmp_path, [70] * 200)
    donor = donor_file(tmp_path, [(prompt(at, 0, 50), {}) for at in range(2)])
    made = joined(tmp_path, trace, donor, shares={"tuning": 0.4, "held-out": 0.6})
    assert made.join["divided"] == {"tuning": 1, "held-out": 1}


def test_a_class_that_the_donors_know_stays_with_its_own_in_every_part(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(
        "Timestamp,Request tokens,Response tokens,Log Type\n"
        + "".join(f"{at},70,5,{'code' if at % 2 else 'chat'}\n" for at in range(200))
    )
    texts = [(prompt(at, 0, 50), {"class": "code" if at < 4 else "chat"}) for at in range(20)]
    made = joined(tmp_path, trace, donor_file(tmp_path, texts))
    class_of = {text: also["class"] for text, also in texts}
    rows = [row for part in made.parts.values() for row in part]
    assert len(rows) == 200
    assert all(class_of[row.messages[0].content] == row.class_ for row in rows)


def test_without_a_class_in_the_trace_the_text_brings_its_own(tmp_path: Path) -> None:
    trace = trace_file(tmp_path, [70] * 100)
    donor = donor_file(tmp_path, [(prompt(at, 0, 50), {"class": "writing"}) for at in range(9)])
    assert joined(tmp_path, trace, donor).found.imported["classes"] == {"writing": 100}


def test_the_text_that_is_sent_must_fit_the_context(tmp_path: Path) -> None:
    trace = trace_file(tmp_path, [70] * 100)
    donor = donor_file(tmp_path, [(prompt(at, 0, 40 + at), {}) for at in range(20)])
    made = joined(tmp_path, trace, donor, rules=Rules(max_context=90))
    assert set(made.found.imported["skipped"]) == {"longer than the context"}
    assert max(len(text) for text in texts_of([row for part in made.parts.values() for row in part])) <= 85 * 4


def test_times_begin_with_the_first_row_that_has_a_text(tmp_path: Path) -> None:
    trace = trace_file(tmp_path, [9_000] * 30 + [70] * 120)
    donor = donor_file(tmp_path, [(prompt(at, 0, 50), {}) for at in range(9)])
    found = joined(tmp_path, trace, donor).found
    assert found.columns.arrivals_ns.tolist() == [at * 10**9 for at in range(120)]
    stretches = sorted(stretch for one in found.division.stretches.values() for stretch in one)
    assert (stretches[0][0], stretches[-1][1]) == (0, found.columns.end_ns)
    assert all(one[1] == other[0] for one, other in pairwise(stretches))
    assert found.division.document["foreign_share"] == 0


def test_rows_out_of_order_and_without_a_time_are_told_apart(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    rows = [{"prompt_tokens": 70, "max_tokens": 5, "arrival_s": 199 - at, "id": f"n{at}"} for at in range(200)]
    del rows[50]["arrival_s"]
    trace.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"max_tokens": 1}]))
    made = joined(tmp_path, trace, donor_file(tmp_path, [(prompt(at, 0, 50), {}) for at in range(9)]))
    assert made.found.imported["skipped"] == {"missing": 1, "no time where other rows have one": 1}
    assert [row.id for row in made.parts["tuning"]] == sorted(
        (row.id for row in made.parts["tuning"]), key=lambda id_: -int(id_[1:])
    )
    assert made.found.division.document["foreign_share"] == 0


def test_a_trace_without_times_is_split_by_conversation(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    rows = [{"prompt_tokens": 70, "max_tokens": 5, "conversation": f"c{at // 3}"} for at in range(120)]
    trace.write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = joined(tmp_path, trace, donor_file(tmp_path, [(prompt(at, 0, 50), {}) for at in range(9)]))
    held = [{row.conversation for row in rows} for rows in made.parts.values()]
    assert sum(map(len, held)) == 40
    assert made.found.imported["needs_arrival_process"] is True


def test_a_trace_that_comes_through_a_pipe_is_kept_until_it_has_its_text(tmp_path: Path) -> None:
    trace = trace_file(tmp_path, [70] * 120)
    donor = donor_file(tmp_path, [(prompt(at, 0, 50), {}) for at in range(9)])
    os.mkfifo(pipe := tmp_path / "pipe.jsonl")
    with subprocess.Popen(["/bin/sh", "-c", f"cat {trace} > {pipe}"]):
        made = joined(tmp_path, pipe, donor)
    assert made.found.source == "pipe.jsonl"
    assert made.found.digest == joined(tmp_path, trace, donor).found.digest


def test_a_trace_that_has_text_is_refused(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"prompt": "a", "output_tokens": 1}\n')
    with pytest.raises(ImportRefused, match=r"trace\.jsonl has text of its own: a donor is for a trace of lengths"):
        joined(tmp_path, trace, donor_file(tmp_path, [("a", {})]))


def test_a_fresh_process_with_another_hash_seed_gives_the_same_digest(tmp_path: Path) -> None:
    trace = trace_file(tmp_path, [70, 71, 150, 20] * 50)
    texts = [(prompt(at, at % 2, length), {"class": f"k{at % 3}"}) for at in range(12) for length in (15, 50, 100)]
    donor = donor_file(tmp_path, texts)
    (scratch := tmp_path / "fresh").mkdir()
    environment = {**os.environ, "PYTHONHASHSEED": "4711", "DJANGO_SETTINGS_MODULE": "config.settings"}
    told = subprocess.run(
        [sys.executable, "-c", FRESH, str(trace), str(donor), str(scratch)],
        env={**environment, "PYTHONPATH": str(settings.BASE_DIR), "DRAFTPROOF_VAR": str(tmp_path / "var")},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert told.strip() == joined(tmp_path, trace, donor).found.digest


def test_the_shell_joins_without_a_split_as_before(tmp_path: Path) -> None:
    trace = trace_file(tmp_path, [70] * 20)
    document = import_file(Wanted(trace, donor=donor_file(tmp_path, [(prompt(0, 0, 50), {})])), tmp_path / "set")
    assert document["rows"] == 20
    assert "divided" not in document["join"]


@given(st.data(), st.integers(1, 3), st.integers(0, 2**32))
def test_every_part_that_asks_gets_a_group_while_there_are_enough(data: st.DataObject, parts: int, seed: int) -> None:
    groups = data.draw(st.lists(st.integers(0, 8), min_size=1, max_size=30))
    group_of = np.array(groups, dtype=np.int32)
    asked = np.array(data.draw(st.lists(st.integers(1, 50), min_size=parts, max_size=parts)))
    part_of = dealt([Deck(None, 5, np.arange(len(groups)), asked)], group_of, seed=seed)
    count = len(set(groups))
    assert len(set(part_of.tolist())) == min(parts, count)
    assert NOBODY not in part_of
    assert all(len(set(part_of[group_of == group].tolist())) == 1 for group in set(groups))


@pytest.mark.django_db
def test_a_real_trace_with_real_text_at_the_defaults(shared_data: Path) -> None:
    trace = shared_data / "traces/azure_llm_2023_conv_first30min.csv"
    told: list[str] = []
    made = import_traffic(
        path=trace,
        name="chat",
        by="engineer",
        reading=Wanted(trace, donor=shared_data / "prompts/spec_bench_first_half.jsonl"),
        tell=lambda stage, done, of: told.append(stage),
    )
    assert list(dict.fromkeys(told)) == [
        "reading",
        "reading prompts",
        "looking for near-duplicates",
        "joining text",
        "writing",
    ]
    assert (made.rows, made.split["foreign_share"], made.split["warnings"]) == (8494, 0, [])
    assert all(abs(made.split["achieved"][kind] - share) < 0.05 for kind, share in SHARES.items())
    assert made.imported["join"]["divided"] == {"tuning": 94, "held-out": 117, "evaluation": 29}
    store = EvidenceStore(settings.EVIDENCE_DIR)
    held = [texts_of(rows_of(store.get(part.digest))) for part in made.parts.all()]
    assert all(not one & other for one, other in combinations(held, 2))
    again = import_traffic(path=trace, name="chat", by="engineer", reading=reading_of(shared_data, trace))
    assert (again, TrafficSet.objects.count()) == (made, 1)


def reading_of(shared_data: Path, trace: Path) -> Wanted:
    return Wanted(trace, donor=shared_data / "prompts/spec_bench_first_half.jsonl")
