"""What a brief may be frozen with, but its author should know first."""

from decisions.rules.brief import Brief


def cautions(brief: Brief) -> list[str]:
    """One sentence per load level of which the brief asks nothing of its own: its trials take engine time and held-out
    requests all the same."""
    named = {cell.level for cell in (*brief.outcome.improve_in, *(rail.cell for rail in brief.guardrails))}
    return [
        f"Neither the outcome nor a guardrail reads the load level {level.name}: there a candidate has only to be no "
        "worse than the non-inferiority margin allows. Name it in outcome.improve_in or in a guardrail, or leave it "
        "out if nothing is to be decided there."
        for level in brief.levels
        if level.name not in named
    ]
