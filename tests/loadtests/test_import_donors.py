"""Text for traces of lengths: joined by length and class, the same way for the same seed, and said on the label."""

import json
from pathlib import Path
from typing import Any

import pytest

from loadtests.canonical import digest
from loadtests.traffic.importers import ImportRefused, Rules, Wanted, import_file
from loadtests.traffic.importers.join import RULE
from loadtests.traffic.levels import Arrival, Level
from loadtests.traffic.plan import plan_level
from loadtests.traffic.rows import Row, read_rows

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
BURST = "Timestamp,Request tokens,Response tokens,Log Type\n"


def azure(*lengths: tuple[int, int]) -> str:
    return AZURE + "".join(f"2023-11-16 18:00:{at:02d},{one},{two}\n" for at, (one, two) in enumerate(lengths))


def donor(*texts: tuple[str, int], class_: str | None = None) -> str:
    """Prompts of so many tokens by the estimate of 4 characters each."""
    return "".join(
        json.dumps(
            {"id": name, "messages": [{"role": "user", "content": name.ljust(tokens * 4, ".")}]}
            | ({"class": class_} if class_ else {})
        )
        + "\n"
        for name, tokens in texts
    )


def joined(tmp_path: Path, trace: str, text: str, out: str = "set", **options: Any) -> tuple[dict[str, Any], list[Row]]:
    (tmp_path / "trace.csv").write_text(trace)
    (tmp_path / "donor.jsonl").write_text(text)
    wanted = Wanted(tmp_path / "trace.csv", donor=tmp_path / "donor.jsonl", **options)
    document = import_file(wanted, tmp_path / out)
    return document, list(read_rows(tmp_path / out / "rows.jsonl"))


def names(rows: list[Row]) -> list[str]:
    return [row.messages[0].content.rstrip(".") for row in rows]


def test_a_row_gets_a_text_of_its_length_and_keeps_its_own_limit(tmp_path: Path) -> None:
    text = donor(("short", 5), ("long", 100))
    document, rows = joined(tmp_path, azure((7, 11), (64, 22), (127, 33), (128, 44)), text)
    assert names(rows) == ["short", "long", "long"]
    assert [(row.arrival_s, row.max_tokens) for row in rows] == [(0, 11), (1, 22), (2, 33)]
    assert document["skipped"] == {"no donor text of this length": 1}
    assert document["label"] == "text joined from donor.jsonl"
    assert document["acceptance"] == {
        "usable": True,
        "why": None,
        "caution": "3 requests carry 2 different texts: acceptance and hits of the prefix cache will be those of so "
        "few. 1 of 4 requests (25%) were left out: the load is that of the others alone.",
    }
    assert document["join"] == {
        "rule": RULE,
        "seed": 0,
        "donor_lengths": "estimated as characters ÷ 4",
        "bins": [
            {"class": None, "from_tokens": 4, "to_tokens": 7, "donors": 1, "rows": 1},
            {"class": None, "from_tokens": 64, "to_tokens": 127, "donors": 1, "rows": 2},
        ],
        "rows": 3,
        "texts": 2,
        "donors_used": 2,
        "most_uses_of_one": 2,
        "donor": {
            "file": "donor.jsonl",
            "bytes": len(text),
            "sha256": digest(text.encode()),
            "compression": None,
            "format": "own",
            "rows": 2,
            "skipped": {},
        },
    }


def test_donors_are_taken_in_turn_and_drawn_by_the_seed(tmp_path: Path) -> None:
    texts, trace = donor(*((f"d{at}", 10) for at in range(6))), azure(*[(10, 5)] * 15)
    first, rows = joined(tmp_path, trace, texts)
    assert sorted(names(rows[:6])) == sorted(names(rows[6:12])) == [f"d{at}" for at in range(6)]
    assert (first["join"]["donors_used"], first["join"]["most_uses_of_one"]) == (6, 3)
    again, _ = joined(tmp_path, trace, texts, "again")
    other, _ = joined(tmp_path, trace, texts, "other", seed=1)
    assert first["digest"] == again["digest"] != other["digest"]


def test_a_class_that_the_donors_know_stays_with_its_own(tmp_path: Path) -> None:
    texts = donor(("talk", 10), class_="chat") + donor(("code", 10), ("program", 100), class_="code")
    trace = BURST + "0,10,5,chat\n1,10,5,code\n2,100,5,chat\n3,100,5,other\n"
    document, rows = joined(tmp_path, trace, texts)
    assert names(rows) == ["talk", "code", "program"]
    assert [row.class_ for row in rows] == ["chat", "code", "other"]
    assert document["skipped"] == {"no donor text of this length": 1}
    assert [(one["class"], one["rows"]) for one in document["join"]["bins"]] == [(None, 1), ("chat", 1), ("code", 1)]


def test_without_a_class_in_the_trace_the_text_brings_its_own(tmp_path: Path) -> None:
    trace, texts = azure((10, 5)), donor(("a", 10), class_="writing")
    assert joined(tmp_path, trace, texts)[0]["classes"] == {"writing": 1}
    assert joined(tmp_path, trace, texts, "named", rules=Rules(class_="chat"))[0]["classes"] == {"chat": 1}


def test_the_text_that_is_sent_must_fit_the_context(tmp_path: Path) -> None:
    document, _ = joined(tmp_path, azure((64, 10), (4, 1)), donor(("a", 100), ("b", 5)), rules=Rules(max_context=80))
    assert (document["rows"], document["skipped"]) == (1, {"longer than the context": 1})
    assert document["join"]["donors_used"] == 1


def test_whose_tokens_were_counted_and_whose_estimated_is_said(tmp_path: Path) -> None:
    text = donor(("a", 100), ("b", 5))
    document, _ = joined(tmp_path, azure((64, 10), (4, 1)), text, rules=Rules(max_context=80))
    assert document["context"] == {
        "max": 80,
        "prompt_tokens": "of the trace's rows counted by the source, of the donor's texts estimated as characters ÷ 4; "
        "both must fit",
    }
    found = [json.loads(line)["detail"] for line in (tmp_path / "set" / "problems.jsonl").open()]
    assert found == [
        "100 tokens of the donor's prompt (estimated as characters ÷ 4) and 10 of output, the context is 80"
    ]
    assert document["prompt_tokens"] == {"p50": 5, "p90": 5, "max": 5}


def test_a_donor_that_says_one_thing_many_times_is_one_text(tmp_path: Path) -> None:
    hot = (
        donor(("same", 10)).replace('"messages"', '"sampling": {"temperature": 1}, "messages"').replace('"same"', '"b"')
    )
    document, _ = joined(tmp_path, azure((10, 5), (10, 5)), donor(("same", 10)) + hot)
    assert (document["join"]["texts"], document["join"]["donors_used"]) == (1, 2)


def test_a_text_for_each_row_needs_no_caution(tmp_path: Path) -> None:
    document, _ = joined(tmp_path, azure((10, 5), (10, 5)), donor(("a", 10), ("b", 10)))
    assert document["acceptance"] == {"usable": True, "why": None, "caution": None}


def test_the_rows_of_a_donor_that_cannot_be_used_are_reported(tmp_path: Path) -> None:
    document, _ = joined(tmp_path, azure((10, 5)), donor(("a", 10)) + '{"prompt": ""}\n')
    assert document["skipped"] == {}
    assert document["join"]["donor"]["skipped"] == {"zero-length prompt": 1}
    found = [json.loads(line) for line in (tmp_path / "set" / "problems.jsonl").open()]
    assert [(one["file"], one["line"]) for one in found] == [("donor.jsonl", 2)]


@pytest.mark.parametrize(
    ("trace", "text", "sentence"),
    [
        (azure((10, 5)), azure((10, 5)), "donor.jsonl holds no text to join"),
        ('{"prompt": "a", "output_tokens": 1}\n', donor(("a", 1)), "trace.csv has text of its own"),
        (azure((10, 5)), donor(("a", 1000)), "1 × no donor text of this length"),
        (azure((10, 5)), "", "donor.jsonl: the file is empty"),
        (
            azure((10, 5)),
            '{"question": "a"}\n',
            r"its fields are 'question'; import that file by itself first \(--map is for the trace alone\)",
        ),
    ],
)
def test_a_join_that_makes_no_sense_is_refused(tmp_path: Path, trace: str, text: str, sentence: str) -> None:
    with pytest.raises(ImportRefused, match=sentence):
        joined(tmp_path, trace, text)
    assert not (tmp_path / "set").exists()


def test_a_real_trace_with_real_text(shared_data: Path, tmp_path: Path) -> None:
    wanted = Wanted(
        shared_data / "traces/azure_llm_2023_code_first30min.csv",
        donor=shared_data / "prompts/spec_bench_first_half.jsonl",
        rules=Rules(max_context=2048),
    )
    document = import_file(wanted, tmp_path / "set")
    assert document["rows"] + sum(document["skipped"].values()) == 5353
    assert document["skipped"]["longer than the context"] >= 2015
    assert document["label"] == "text joined from spec_bench_first_half.jsonl"
    rows = list(read_rows(tmp_path / "set" / "rows.jsonl"))
    assert {row.class_ for row in rows} <= {"writing", "math", "reasoning", "coding", "roleplay", "qa", "rag"} | {
        "extraction",
        "humanities",
        "stem",
        "translation",
        "summarization",
        "math_reasoning",
    }


def test_a_replay_of_a_mooncake_window_leaves_at_its_own_times(shared_data: Path, tmp_path: Path) -> None:
    trace = tmp_path / "mooncake.jsonl"
    whole = shared_data / "traces/mooncake_conversation_first20min.jsonl"
    trace.write_bytes(b"".join(whole.read_bytes().splitlines(keepends=True)[:800]))
    (tmp_path / "donor.jsonl").write_text(donor(*((f"d{bits}", 2**bits) for bits in range(1, 17))))
    import_file(Wanted(trace, donor=tmp_path / "donor.jsonl"), tmp_path / "set")
    rows = list(read_rows(tmp_path / "set" / "rows.jsonl"))
    recorded = [json.loads(line)["timestamp"] for line in trace.open()]
    level = Level(name="peak", arrival=Arrival(process="replay"), duration_s=1200)
    planned = plan_level(list(enumerate(rows)), level, seed=0, prefix="r")
    assert [one.planned_ns for one in planned] == [(at - recorded[0]) * 1_000_000 for at in recorded]
    assert [one.traffic_row.max_tokens for one in planned] == [
        json.loads(line)["output_length"] for line in trace.open()
    ]


def test_a_replay_of_a_burstgpt_window_leaves_at_its_own_times(shared_data: Path, tmp_path: Path) -> None:
    trace = shared_data / "traces/burstgpt_1_rows1-30.csv"
    (tmp_path / "donor.jsonl").write_text(donor(*((f"d{bits}", 2**bits) for bits in range(1, 17))))
    import_file(Wanted(trace, donor=tmp_path / "donor.jsonl"), tmp_path / "set")
    rows = list(read_rows(tmp_path / "set" / "rows.jsonl"))
    recorded = [int(line.split(",")[0]) for line in trace.read_text().splitlines()[1:] if ",0,0,0," not in line]
    level = Level(name="peak", arrival=Arrival(process="replay"), duration_s=2400)
    planned = plan_level(list(enumerate(rows)), level, seed=0, prefix="r")
    assert [one.planned_ns for one in planned] == [(at - recorded[0]) * 1_000_000_000 for at in recorded]
