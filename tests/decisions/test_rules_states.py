import pytest
from hypothesis import given
from hypothesis import strategies as st

from decisions.rules.states import ACTS, ACTS_SAID, MOVES, STATES, NotAllowed, acts_from, approval_refusal, may_move

TABLE = {
    "draft": {"edit": "draft", "freeze": "frozen", "withdraw": "withdrawn"},
    "frozen": {"start": "measuring", "withdraw": "withdrawn", "supersede": "superseded"},
    "measuring": {"judge": "in-review", "cancel": "cancelled"},
    "in-review": {
        "approve": "approved",
        "reject": "rejected",
        "approve-in-part": "in-review",
        "reject-in-part": "in-review",
        "break-glass": "in-review",
        "request-changes": "changes-requested",
        "withdraw": "withdrawn",
    },
    "approved": {"supersede": "superseded"},
    "rejected": {"supersede": "superseded"},
    "changes-requested": {"supersede": "superseded"},
    "withdrawn": {"supersede": "superseded"},
    "cancelled": {"supersede": "superseded"},
    "superseded": {},
}


def test_every_move_of_the_table_and_no_other() -> None:
    assert set(TABLE) == set(STATES)
    for state, moves in TABLE.items():
        assert {act: may_move(state, act) for act in acts_from(state)} == moves
        for act in set(ACTS) - set(moves):
            with pytest.raises(NotAllowed, match="can't be"):
                may_move(state, act)


def test_a_refusal_says_what_would_be_allowed() -> None:
    with pytest.raises(NotAllowed) as refused:
        may_move("frozen", "edit")
    assert str(refused.value) == "A revision that is frozen can't be edited; it would have to be draft."
    assert ACTS_SAID.keys() == MOVES.keys()


@pytest.mark.parametrize(("state", "act"), [("frozen", "fly"), ("nowhere", "edit")])
def test_unknown_words_are_refused(state: str, act: str) -> None:
    with pytest.raises(NotAllowed, match="There is no"):
        may_move(state, act)


@given(st.lists(st.sampled_from(ACTS), max_size=12))
def test_no_walk_approves_what_was_not_frozen_and_judged(acts: list[str]) -> None:
    state, done = "draft", []
    for act in acts:
        if act in acts_from(state):
            state = may_move(state, act)
            done.append(act)
    if state == "approved":
        staying = ("edit", "approve-in-part", "reject-in-part", "break-glass")
        assert [one for one in done if one not in staying] == ["freeze", "start", "judge", "approve"]


@pytest.mark.parametrize("found", ["FAIL", "INCONCLUSIVE", "INVALID"])
def test_only_a_measured_pass_can_be_approved(found: str) -> None:
    refusal = approval_refusal({"verdict": found, "evidence_class": "measured"})
    assert refusal == f"The verdict is {found}: only a PASS can be approved."
    imported = approval_refusal({"verdict": "PASS", "evidence_class": "imported"})
    assert imported == (
        "The evidence is imported: only measured evidence can carry an approval. It lacks the fingerprint of the "
        "configuration that answered, a plan’s digest, digests of the prompts, a known warm-up and a fresh engine for "
        "each boot."
    )
    simulated = approval_refusal({"verdict": "PASS", "evidence_class": "simulated"})
    assert simulated == "The evidence is simulated: only measured evidence can carry an approval."
    assert approval_refusal({"verdict": "PASS", "evidence_class": "measured"}) is None
