"""What a token of the API may be: its scopes, its name and how long it lasts."""

from collections.abc import Collection, Sequence

READ, SUBMIT, WORKER = "read", "submit", "worker"
# None of them signs: nothing of the API approves, rejects, revokes, breaks the glass or sets a policy.
SCOPES_SAID = {
    READ: "reads what its person may read",
    SUBMIT: "writes briefs and starts, stops and withdraws them",
    WORKER: "reads a pool's queue and declares faults of hosts",
}
SCOPES = tuple(SCOPES_SAID)
LONGEST_NAME = 80
MOST_DAYS = 365


def token_problem(*, name: str, scopes: Collection[str], days: int) -> str | None:
    """None where such a token can be made."""
    if not name or len(name) > LONGEST_NAME or not name.isprintable():
        return f"say what the token is for, in at most {LONGEST_NAME} characters on one line"
    if unknown := sorted(set(scopes) - set(SCOPES)):
        return f"there is no scope {unknown[0]}; there are {', '.join(SCOPES)}"
    if not scopes:
        return f"choose at least one scope of {', '.join(SCOPES)}"
    if not 1 <= days <= MOST_DAYS:
        return f"a token lasts from 1 to {MOST_DAYS} days, not {days}"
    return None


def in_order(scopes: Collection[str]) -> Sequence[str]:
    return [one for one in SCOPES if one in scopes]


def lacks_scope(scope: str, scopes: Collection[str]) -> str | None:
    """None where a token of these scopes may; the sentence with which to refuse otherwise."""
    if scope in scopes:
        return None
    return f"This token has no scope {scope}: it has {', '.join(in_order(scopes))}. Make another one for this."
