"""What must not be kept is taken out of every message before anything is stored, and the set says so."""

import json
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from config.cli import main
from loadtests.redacting import redaction_of, redaction_of_service
from loadtests.traffic.importers import ImportRefused, Redaction, Rules, Wanted, import_file, read_pattern
from loadtests.traffic.importers.drafts import Draft
from loadtests.traffic.importers.redaction import Redactor, problem_of

MAIL = r"[\w.]+@[\w.]+\w"
PHONE = r"\+?\d[\d ]{6,}\d"
SECRET = "Write to ann.lee@example.org or +44 20 7946 0958, and quote 12."
CLEAN = "Write to [redacted] or <phone>, and quote 12."


def content(*texts: str) -> str:
    return "".join(
        json.dumps({"messages": [{"role": "user", "content": text}], "max_tokens": 8}) + "\n" for text in texts
    )


@pytest.fixture
def imported(tmp_path: Path) -> Callable[..., tuple[dict[str, Any], str, str]]:
    """import.json, rows.jsonl and problems.jsonl of a set."""

    def run(text: str, redaction: Redaction | None, **options: Any) -> tuple[dict[str, Any], str, str]:
        path, out = tmp_path / "traffic.jsonl", tmp_path / "set"
        path.write_text(text)
        document = import_file(Wanted(path, rules=Rules(redaction=redaction), **options), out)
        assert json.loads((out / "import.json").read_text()) == document
        return document, (out / "rows.jsonl").read_text(), (out / "problems.jsonl").read_text()

    return run


Import = Callable[..., tuple[dict[str, Any], str, str]]
RULES = Redaction(((MAIL, "[redacted]"), (PHONE, "<phone>")))


def test_matches_are_replaced_in_every_message_and_counted(imported: Import) -> None:
    history = [
        {"role": "system", "content": "You are ann.lee@example.org."},
        {"role": "user", "content": SECRET},
        {"role": "assistant", "content": "bob@example.org and ann@example.org"},
        {"role": "user", "content": "Thanks"},
    ]
    whole = json.dumps({"messages": history, "max_tokens": 8}) + "\n" + content("Nothing to hide")
    document, rows, _ = imported(whole, RULES)
    first, second = (json.loads(line) for line in rows.splitlines())
    assert [one["content"] for one in first["messages"]] == [
        "You are [redacted].",
        CLEAN,
        "[redacted] and [redacted]",
        "Thanks",
    ]
    assert second["messages"][0]["content"] == "Nothing to hide"
    assert document["redaction"] == {
        "patterns": [
            {"pattern": MAIL, "replacement": "[redacted]"},
            {"pattern": PHONE, "replacement": "<phone>"},
        ],
        "callable": None,
        "rows": 1,
        "replaced": {MAIL: 4, PHONE: 1},
    }


def test_a_set_without_redaction_says_so_and_has_another_digest(imported: Import, tmp_path: Path) -> None:
    plain, rows, _ = imported(content(SECRET), None)
    assert plain["redaction"] is None
    assert "ann.lee@example.org" in rows
    (tmp_path / "set").rename(tmp_path / "plain")
    document, _, _ = imported(content(SECRET), RULES)
    assert document["digest"] != plain["digest"]
    assert document["source"] == plain["source"]


def test_a_replacement_is_taken_as_it_is_written(imported: Import) -> None:
    _, rows, _ = imported(content("a1b"), Redaction(((r"\d", r"\1\g<0>"),)))
    assert json.loads(rows)["messages"][0]["content"] == r"a\1\g<0>b"


def test_a_prompt_that_becomes_empty_is_a_bad_row_and_not_counted(imported: Import) -> None:
    document, rows, problems = imported(content(SECRET, "Hello"), Redaction((("(?s).*@.*", ""),)))
    assert (document["rows"], document["skipped"]) == (1, {"zero-length prompt": 1})
    assert (document["redaction"]["rows"], document["redaction"]["replaced"]) == (0, {"(?s).*@.*": 0})
    assert "example.org" not in rows + problems


def test_the_donors_text_is_redacted_too(imported: Import, tmp_path: Path) -> None:
    donor = tmp_path / "donor.jsonl"
    donor.write_text(content(SECRET))
    trace = json.dumps({"prompt_tokens": 15, "max_tokens": 9, "arrival_s": 0}) + "\n"
    document, rows, _ = imported(trace, RULES, donor=donor)
    assert json.loads(rows)["messages"][0]["content"] == CLEAN
    assert (document["redaction"]["rows"], document["redaction"]["replaced"]) == (1, {MAIL: 1, PHONE: 1})


def test_a_function_of_ones_own_comes_after_the_expressions(imported: Import) -> None:
    redaction = Redaction(((MAIL, "x"),), "mine:shout", str.upper)
    document, rows, _ = imported(content("to ann@example.org"), redaction)
    assert json.loads(rows)["messages"][0]["content"] == "TO X"
    assert (document["redaction"]["callable"], document["redaction"]["rows"]) == ("mine:shout", 1)


def quoting(text: str) -> str:
    raise RuntimeError(f"can't read {text}")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (quoting, "the redaction mine:own failed in line 2: RuntimeError"),
        (lambda text: text.encode(), "the redaction mine:own failed in line 2: it gave bytes, not text"),
        (lambda text: None, "the redaction mine:own failed in line 2: it gave NoneType, not text"),
    ],
)
def test_a_function_that_fails_refuses_the_file_without_quoting_it(
    imported: Import, tmp_path: Path, call: Any, said: str
) -> None:
    with pytest.raises(ImportRefused) as refusal:
        imported("\n" + content(SECRET), Redaction((), "mine:own", call))
    assert str(refusal.value) == said
    assert "ann.lee" not in "".join(traceback.format_exception(refusal.value))
    assert not (tmp_path / "set").exists()


@pytest.mark.parametrize(
    ("patterns", "said"),
    [
        ((("ok", ""), ("(a", "")), "line 2: '(a' is no regular expression: missing ), unterminated subpattern"),
        ((("a*", ""),), "line 1: 'a*' can match where there is nothing, and would put its replacement between"),
        ((("ok", ""), (r"\b", "")), r"line 2: '\\b' can match where there is nothing"),
        (((r"(?=@)", ""),), "line 1: '(?=@)' can match where there is nothing"),
        (((r"(?<=: ).{0,9}", ""),), "line 1: '(?<=: ).{0,9}' can match where there is nothing"),
        (((r"@|$", ""),), "line 1: '@|$' can match where there is nothing"),
        ((("a" * 501, ""),), "line 1: longer than 500 characters"),
        ((("a", "b" * 501),), "line 1: longer than 500 characters"),
        ((("\ud800", ""),), "line 1: a character that is no Unicode text"),
        ((("a", "b"),) * 51, "51 regular expressions: 50 are the most"),
    ],
)
def test_an_expression_that_cannot_be_used_is_named(patterns: tuple[tuple[str, str], ...], said: str) -> None:
    with pytest.raises(ValueError, match=r"line|most") as refusal:
        Redaction(patterns)
    assert str(refusal.value).startswith(said)
    with pytest.raises(ImportRefused, match="redaction, "):
        redaction_of(patterns, None)


PIECES = st.sampled_from(
    [
        "a",
        ".",
        "@",
        r"\b",
        r"\B",
        "^",
        "$",
        "x*",
        "y?",
        "z+",
        "(?=a)",
        "(?<=a)",
        "(?!a)",
        "(a)?",
        "(b|)",
        r"\d{0,2}",
        "(?i:q)",
    ]
)


@given(st.lists(PIECES, min_size=1, max_size=5), st.booleans(), st.text(st.sampled_from("ab@x1 q\n"), max_size=12))
def test_an_expression_that_is_accepted_never_matches_nothing(pieces: list[str], either: bool, text: str) -> None:
    pattern = ("|" if either else "").join(pieces)
    if problem_of(pattern, "") is None:
        assert all(match.group() for match in re.finditer(pattern, text))


def test_a_group_that_is_referred_to_is_as_long_as_it_was() -> None:
    assert problem_of(r"(a|bc)\1", "") is None
    assert problem_of(r"(a?)\1", "") is not None


# Every text of a row, not its prompt alone


def test_stop_strings_names_and_classes_are_redacted_too(imported: Import) -> None:
    def row(number: int, conversation: str) -> str:
        whole = {
            "id": f"{number}:ann@example.org",
            "conversation": conversation,
            "tenant": "ann@example.org",
            "class": "mail to ann@example.org",
            "messages": [{"role": "user", "content": "Hello"}],
            "sampling": {"stop": ["ann@example.org:", "\n"]},
            "max_tokens": 8,
        }
        return json.dumps(whole) + "\n"

    people = ["ann@example.org", "bob@example.org", "ann@example.org"]
    document, rows, problems = imported("".join(map(row, range(3), people)), Redaction(((MAIL, "[mail]"),)))
    found = [json.loads(line) for line in rows.splitlines()]
    assert "example.org" not in rows + problems + json.dumps(document["classes"])
    assert [one["conversation"] for one in found] == ["[mail]-2", "[mail]-4", "[mail]-2"]
    assert [one["turn"] for one in found] == [1, 1, 2]
    assert [one["id"] for one in found] == ["0:[mail]-1", "1:[mail]-3", "2:[mail]-5"]
    assert {(one["tenant"], one["class"]) for one in found} == {("[mail]", "mail to [mail]")}
    assert [one["sampling"]["stop"] for one in found] == [["[mail]:", "\n"]] * 3
    assert document["redaction"]["rows"] == 3
    assert document["redaction"]["replaced"] == {MAIL: 15}


def test_a_stop_string_of_which_nothing_is_left_is_dropped(imported: Import) -> None:
    whole = {"prompt": "Hello", "sampling": {"stop": ["ann@example.org", "."]}, "max_tokens": 8}
    _, rows, _ = imported(json.dumps(whole) + "\n", Redaction(((MAIL, ""),)))
    assert json.loads(rows)["sampling"]["stop"] == ["."]


def test_the_names_of_fields_left_aside_are_redacted_too(imported: Import) -> None:
    body = {"prompt": "hello", "max_tokens": 8, "ann@example.org": 1}
    batch = {"custom_id": "1", "url": "/v1/chat/completions", "body": body}
    document, _, _ = imported(json.dumps(batch) + "\n", Redaction(((r"ann@[\w.]+", "[mail]"),)))
    assert document["unread_fields"] == {"body.[mail]": 1}


def test_what_is_said_of_rows_that_are_left_out_is_redacted_too(imported: Import) -> None:
    rows = [
        {"ann@example.org": 1},
        {"prompt": {"ann@example.org": "x"}},
        {"prompt": "x", "max_tokens": "+442079460958"},
    ]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    _, _, problems = imported(content("Hello") + lines, RULES)
    said = [(one["field"], one["detail"]) for one in map(json.loads, problems.splitlines())]
    assert said == [
        ("[redacted]", ""),
        ("prompt", "an object with the fields '[redacted]'"),
        ("max_tokens", "<phone>"),
    ]


def test_a_refusal_names_no_column_that_is_redacted(tmp_path: Path) -> None:
    path = tmp_path / "traffic.csv"
    path.write_text("ann@example.org,text\n1,Hello\n")
    wanted = Wanted(path, mapping=(("prompt", "prompt"),), rules=Rules(redaction=RULES))
    with pytest.raises(ImportRefused) as refused:
        import_file(wanted, tmp_path / "set")
    assert str(refused.value) == "traffic.csv: no column 'prompt'; the columns are '[redacted]', 'text'"


def test_the_sessions_of_a_trace_are_redacted_too(imported: Import) -> None:
    lines = [
        {"timestamp": at, "input_length": 9, "output_length": 9, "session_id": f"s-{who}@example.org"}
        for at, who in enumerate(["ann", "bob", "ann"])
    ]
    content = "".join(json.dumps(line) + "\n" for line in lines)
    _, rows, _ = imported(content, Redaction(((MAIL, "[mail]"),)), format="mooncake")
    assert [json.loads(line)["conversation"] for line in rows.splitlines()] == [
        "s-[mail]-1",
        "s-[mail]-2",
        "s-[mail]-1",
    ]


def test_what_is_written_after_the_last_arrow_is_the_replacement() -> None:
    assert read_pattern("a.c") == ("a.c", "[redacted]")
    assert read_pattern("a=>b=>c") == ("a=>b", "c")
    assert read_pattern("a=>") == ("a", "")


def test_nothing_asked_is_no_redaction() -> None:
    assert redaction_of([], "") is None
    assert redaction_of_service([{"pattern": "a", "replacement": "b"}], None) == Redaction((("a", "b"),))


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("json", "must be written as package.module:function"),
        ("no_such_module:clean", "can't be loaded: ModuleNotFoundError"),
        ("json:no_such_name", "can't be loaded: AttributeError"),
        ("json:__name__", "is no function"),
    ],
)
def test_a_function_that_cannot_be_loaded_is_named(path: str, said: str) -> None:
    with pytest.raises(ImportRefused, match=said):
        redaction_of([], path)


@given(st.lists(st.text(), min_size=1, max_size=4), st.text(max_size=5).filter(lambda put: "@" not in put))
def test_no_match_is_left_whatever_the_text(texts: list[str], put: str) -> None:
    redactor = Redactor(Redaction((("@+", put.replace("\0", "").encode("utf-8", "ignore").decode()),)))
    clean, changed = redactor.redacted(Draft(1, 1, messages=[{"role": "user", "content": text} for text in texts]))
    assert clean.messages
    assert not any("@" in one["content"] for one in clean.messages)
    assert changed.row == any("@" in text for text in texts)


def test_the_shell_takes_expressions_and_a_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    (tmp_path / "own_redaction.py").write_text("def clean(text):\n    return text.replace('12', '…')\n")
    (tmp_path / "traffic.jsonl").write_text(content(SECRET))
    arguments = ["--redact", MAIL, "--redact", f"{PHONE}=><phone>", "--redact-with", "own_redaction:clean"]
    result = CliRunner().invoke(main, ["import", "traffic.jsonl", "--out", "set", *arguments])
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["redaction"]["callable"] == "own_redaction:clean"
    assert CLEAN.replace("12", "…") in (tmp_path / "set" / "rows.jsonl").read_text()


def test_the_shell_refuses_what_it_cannot_use(tmp_path: Path) -> None:
    (tmp_path / "traffic.jsonl").write_text(content(SECRET))
    command = ["import", str(tmp_path / "traffic.jsonl"), "--out", str(tmp_path / "set"), "--redact", "(a"]
    result = CliRunner().invoke(main, command)
    assert (result.exit_code, "line 1: '(a' is no regular expression" in result.output) == (2, True)
    assert not (tmp_path / "set").exists()


# A prompt in a place of names


SENTENCE = "Please delete everything that you have about me"


def test_a_field_that_is_named_by_a_sentence_is_not_quoted(imported: Import) -> None:
    odd = json.dumps({"prompt": "hello", "class": "chat", SENTENCE: 1}) + "\n"
    document, _, problems = imported(odd + content("hello"), None, format="own")
    assert json.loads(problems)["field"] == f"a name of {len(SENTENCE)} characters"
    assert SENTENCE not in problems + json.dumps(document)


def test_fields_that_are_left_aside_are_not_quoted_either(imported: Import) -> None:
    batch = {"custom_id": "1", "url": "/v1/chat/completions", "body": {"prompt": "hello", "max_tokens": 8, SENTENCE: 1}}
    document, _, _ = imported(json.dumps(batch) + "\n", None)
    assert document["unread_fields"] == {f"a name of {len(SENTENCE) + 5} characters": 1}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mapping": (("question", "prompt"),)},
        {"mapping": (("question", "prompt"),), "format": "csv"},
        {"mapping": (("question", "prompt"),), "format": "tsv"},
    ],
)
def test_a_table_without_names_is_refused_without_quoting_its_first_row(imported: Import, options: Any) -> None:
    with pytest.raises(ImportRefused) as refusal:
        imported(f"{SENTENCE},42\n{SENTENCE},43\n", None, **options)
    assert SENTENCE not in str(refusal.value)


def test_a_row_whose_cells_repeat_is_no_header_and_is_not_quoted(imported: Import) -> None:
    with pytest.raises(ImportRefused, match=r"'a name of 47 characters' more than once"):
        imported(f"{SENTENCE},{SENTENCE}\n", None, mapping=(("question", "prompt"),), format="csv")
