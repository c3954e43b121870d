"""Every public trace and prompt file imports, under the names it has, or is refused with the reason."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from django.conf import settings

from config.cli import main
from loadtests.canonical import digest
from loadtests.commands.import_traffic import import_traffic as reading
from loadtests.commands.import_traffic import wanted_of
from loadtests.evidence.store import EvidenceStore
from loadtests.services.import_traffic import import_traffic
from loadtests.traffic.importers import LengthRow
from loadtests.traffic.rows import part_content, read_rows, rows_of


def run(file: Path, out: Path, *more: str) -> Result:
    return CliRunner().invoke(main, ["import", str(file), "--out", str(out), *more])


def maps(*pairs: str) -> list[str]:
    return [word for pair in pairs for word in ("--map", pair)]


BFCL = maps("id=id", "question=dialogue")
MGSM = ["--no-header", *maps("1=prompt")]
NO_ANSWER = "the turn before has no recorded answer"

# file, options, (format, rows, conversations, duration in seconds, skipped)
IMPORTED: list[tuple[str, list[str], tuple[str, int, int, float | None, dict[str, int]]]] = [
    ("traces/aiperf_example_trace.jsonl", [], ("mooncake", 3, 3, 27.482, {})),
    ("traces/azure_llm_2023_code_first30min.csv", [], ("azure", 5353, 5353, 1705.797496, {})),
    ("traces/azure_llm_2023_conv_first30min.csv", [], ("azure", 10101, 10101, 1798.909243, {})),
    ("traces/burstgpt_1_rows1-30.csv", [], ("burstgpt", 29, 29, 2288.0, {"zero-length output": 1})),
    (
        "traces/burstgpt_v2_sessions_rows523-574.jsonl",
        maps(
            "arrival_ms=arrival_ms",
            "input_length=prompt_tokens",
            "output_length=max_tokens",
            "session_id=conversation",
            "request_id=id",
        ),
        ("mapped", 52, 22, 1549.0, {}),
    ),
    (
        "traces/etalon_sharegpt_lengths_rows1-300.csv",
        maps("num_prefill_tokens=prompt_tokens", "num_decode_tokens=max_tokens"),
        ("mapped", 300, 300, None, {}),
    ),
    ("traces/mooncake_conversation_first20min.jsonl", [], ("mooncake", 3658, 3658, 1199.999, {})),
    ("traces/mooncake_synthetic_rows1-1000.jsonl", [], ("mooncake", 1000, 1000, 272.653, {})),
    (
        "traces/vidur_splitwise_conv_rows1-500.csv",
        maps("arrived_at=arrival_s", "num_prefill_tokens=prompt_tokens", "num_decode_tokens=max_tokens"),
        ("mapped", 500, 500, 129.012474, {}),
    ),
    ("prompts/bfcl_v4_live_simple_rows1-60.jsonl", BFCL, ("mapped", 60, 60, None, {})),
    ("prompts/bfcl_v4_multi_turn_base_rows1-20.jsonl", BFCL, ("mapped", 20, 20, None, {NO_ANSWER: 50})),
    ("prompts/bfcl_v4_simple_python_0-99.jsonl", BFCL, ("mapped", 100, 100, None, {})),
    (
        "prompts/blns_even.json",
        ["--no-header", *maps("1=prompt")],
        ("mapped", 257, 257, None, {"zero-length prompt": 1}),
    ),
    ("prompts/fastchat_dummy_conversation_1-40.json", [], ("sharegpt", 80, 40, None, {})),
    ("prompts/gsm8k_test_rows1-300.jsonl", maps("question=prompt"), ("mapped", 300, 300, None, {})),
    ("prompts/humaneval_0-79.jsonl.gz", [], ("vllm-custom", 80, 80, None, {})),
    ("prompts/mbpp_task11-160.jsonl", maps("text=prompt", "task_id=id"), ("mapped", 150, 150, None, {})),
    *((f"prompts/mgsm_{one}_rows1-60.tsv", MGSM, ("mapped", 60, 60, None, {})) for one in ("ja", "ru", "te", "zh")),
    (
        "prompts/oasst_en_tree_rows1-50.jsonl",
        maps("message_tree_id=id", "prompt.text=prompt"),
        ("mapped", 50, 50, None, {}),
    ),
    (
        "prompts/self_instruct_user_tasks_0-125.jsonl",
        maps("id=id", "instruction=prompt", "instances.0.input=prompt", "motivation_app=class"),
        ("mapped", 126, 126, None, {}),
    ),
    (
        "prompts/sonnet.txt",
        ["--format", "tsv", "--no-header", *maps("1=prompt")],
        ("mapped", 84, 84, None, {}),
    ),
    ("prompts/spec_bench_first_half.jsonl", [], ("spec-bench", 240, 240, None, {NO_ANSWER: 40})),
    ("prompts/speculators_hermes_toolcall.jsonl", [], ("sharegpt", 2, 1, None, {})),
    ("prompts/speculators_ultrachat_messages.jsonl", maps("messages=dialogue"), ("mapped", 4, 1, None, {})),
]

# file, options, what the sentence must say
REFUSED: list[tuple[str, list[str], str]] = [
    ("traces/etalon_sharegpt_lengths_rows1-300.csv", [], "'num_prefill_tokens', 'num_decode_tokens'"),
    ("traces/vidur_splitwise_conv_rows1-500.csv", [], "'arrived_at', 'num_prefill_tokens', 'num_decode_tokens'"),
    ("traces/burstgpt_v2_sessions_rows523-574.jsonl", [], "'arrival_ms'"),
    ("prompts/gsm8k_test_rows1-300.jsonl", [], "'question', 'answer'; say with --map"),
    ("prompts/blns_even.json", [], "a list of texts needs --no-header"),
    ("prompts/sonnet.txt", [], "--format tsv --no-header"),
    ("prompts/mgsm_te_rows1-60.tsv", [], "--no-header"),
    ("prompts/oasst_en_tree_rows1-50.jsonl", [], "'message_tree_id', 'tree_state', 'prompt'"),
    ("prompts/spec_bench_first_half.jsonl", ["--on-bad-row", "refuse"], "line 1, field turns.1"),
    (
        "traces/burstgpt_1_rows1-30.csv",
        ["--on-bad-row", "refuse"],
        "line 22, field Response tokens: zero-length output",
    ),
    ("traces/azure_llm_2023_code_first30min.csv", ["--format", "mooncake"], "not JSON"),
    ("prompts/sonnet.txt", ["--format", "azure"], "no column 'TIMESTAMP', 'ContextTokens', 'GeneratedTokens'"),
]


def test_no_shared_file_is_forgotten(shared_data: Path) -> None:
    there = {
        str(one.relative_to(shared_data)) for kind in ("traces", "prompts") for one in (shared_data / kind).iterdir()
    }
    assert there == {name for name, _, _ in IMPORTED}


@pytest.mark.parametrize(("name", "options", "expected"), IMPORTED, ids=[one[0] for one in IMPORTED])
def test_a_shared_file_imports(
    shared_data: Path, tmp_path: Path, name: str, options: list[str], expected: tuple[Any, ...]
) -> None:
    result = run(shared_data / name, tmp_path / "set", *options)
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout)
    shown = ("format", "rows", "conversations", "duration_s", "skipped")
    assert tuple(printed[key] for key in shown) == expected
    assert printed["needs_arrival_process"] == (expected[3] is None)
    assert sum(printed["classes"].values()) == printed["rows"]

    out = tmp_path / "set"
    assert sorted(one.name for one in out.iterdir()) == ["import.json", "problems.jsonl", "rows.jsonl"]
    assert json.loads((out / "import.json").read_bytes()) == {k: v for k, v in printed.items() if k != "out"}
    content = (out / "rows.jsonl").read_bytes()
    assert digest(content) == printed["digest"]
    assert canonical_again(out / "rows.jsonl", text=printed["acceptance"]["usable"]) == content
    problems = [json.loads(line) for line in (out / "problems.jsonl").read_bytes().splitlines()]
    assert len(problems) == sum(printed["skipped"].values())


def canonical_again(rows: Path, *, text: bool) -> bytes:
    """What the project's own reader makes of the rows."""
    if text:
        assert rows_of(rows.read_bytes()) == list(read_rows(rows))
        return part_content(read_rows(rows))
    lines = rows.read_bytes().split(b"\n")[:-1]
    return b"".join(LengthRow.model_validate_json(line).content + b"\n" for line in lines)


@pytest.mark.django_db
@pytest.mark.parametrize(("name", "options", "expected"), IMPORTED, ids=[one[0] for one in IMPORTED])
def test_a_shared_file_becomes_a_set_or_is_too_small_for_one(
    shared_data: Path, tmp_path: Path, name: str, options: list[str], expected: tuple[Any, ...]
) -> None:
    with reading.make_context("import", [str(shared_data / name), "--out", "none", *options]) as context:
        asked = {key: value for key, value in context.params.items() if key not in ("file", "out")}
    path, shares = shared_data / name, {"tuning": 0.5, "held-out": 0.5}
    try:
        created = import_traffic(
            path=path, name=name, by="engineer", reading=wanted_of(path, **asked), shares=shares, block_s=20
        )
    except ValueError as refusal:
        assert "nothing is left for held-out" in str(refusal) or "nothing is left for tuning" in str(refusal)  # noqa: PT017
        assert expected[2] <= 3
        return
    assert created.rows == expected[1]
    run(path, tmp_path / "set", *options)
    store = EvidenceStore(settings.EVIDENCE_DIR)
    parts = [store.get(part.digest).splitlines(keepends=True) for part in created.parts.all()]
    lines = (tmp_path / "set" / "rows.jsonl").read_bytes().splitlines(keepends=True)
    assert sorted(line for part in parts for line in part) == sorted(lines)
    assert len(created.statistics["comparison"]["measures"]) == (4 if created.statistics["timed"] else 3)


@pytest.mark.parametrize(("name", "options", "sentence"), REFUSED, ids=[f"{one[0]} {one[1]}" for one in REFUSED])
def test_a_shared_file_is_refused_with_the_reason(
    shared_data: Path, tmp_path: Path, name: str, options: list[str], sentence: str
) -> None:
    result = run(shared_data / name, tmp_path / "set", *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert sentence in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "fit", "beyond"),
    [
        ("azure_llm_2023_conv_first30min.csv", 8442, 1659),
        ("azure_llm_2023_code_first30min.csv", 3338, 2015),
        ("mooncake_conversation_first20min.jsonl", 686, 2972),
    ],
)
def test_rows_beyond_the_context_are_counted_and_left_whole(
    shared_data: Path, tmp_path: Path, name: str, fit: int, beyond: int
) -> None:
    printed = json.loads(run(shared_data / "traces" / name, tmp_path / "set", "--max-context", "2048").stdout)
    assert (printed["rows"], printed["skipped"]) == (fit, {"longer than the context": beyond})
    assert printed["context"] == {"max": 2048, "prompt_tokens": "counted by the source"}
    assert printed["left_out"] == {"rows": beyond, "share": beyond / (fit + beyond)}


def test_azure_under_its_own_names_and_under_vidurs_are_the_same_requests(shared_data: Path, tmp_path: Path) -> None:
    traces = shared_data / "traces"
    run(traces / "azure_llm_2023_conv_first30min.csv", tmp_path / "azure")
    run(traces / "vidur_splitwise_conv_rows1-500.csv", tmp_path / "vidur", *IMPORTED[8][1])
    azure, vidur = (
        [LengthRow.model_validate_json(line) for line in (tmp_path / one / "rows.jsonl").open("rb")]
        for one in ("azure", "vidur")
    )
    pairs = list(zip(azure, vidur, strict=False))
    assert len(pairs) == 500
    assert all((one.prompt_tokens, one.max_tokens) == (two.prompt_tokens, two.max_tokens) for one, two in pairs)
    # Vidur keeps microseconds of the same clock.
    assert all(abs(one.arrival_s - two.arrival_s) < 1e-5 for one, two in pairs)


def test_batches_keep_the_order_of_the_file(shared_data: Path, tmp_path: Path) -> None:
    printed = json.loads(run(shared_data / "traces/mooncake_conversation_first20min.jsonl", tmp_path / "set").stdout)
    assert (printed["times"]["unsorted_rows"], printed["times"]["repeated"]) == (0, 3257)
    rows = [LengthRow.model_validate_json(line) for line in (tmp_path / "set/rows.jsonl").open("rb")]
    assert [row.id for row in rows] == [f"r{number:07d}" for number in range(1, 3659)]


def test_sessions_keep_their_turns(shared_data: Path, tmp_path: Path) -> None:
    name, options, _ = IMPORTED[4]
    run(shared_data / name, tmp_path / "set", *options)
    rows = [LengthRow.model_validate_json(line) for line in (tmp_path / "set/rows.jsonl").open("rb")]
    turns: dict[str, list[int]] = {}
    for row in rows:
        turns.setdefault(row.conversation, []).append(row.turn)
    assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in turns.values())
    assert max(map(len, turns.values())) > 1
