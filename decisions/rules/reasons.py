"""What counts as a reason: whoever reads the history years later must learn something from it."""

SHORTEST_REASON = 10


def is_too_short(reason: str) -> bool:
    return len(reason.strip()) < SHORTEST_REASON
