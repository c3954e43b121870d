"""The seal on held-out traffic. ``loadtests`` knows no briefs; ``decisions`` registers its rule when Django starts."""

from typing import Protocol


class MayOpen(Protocol):
    """None where the held-out part may be read for this brief, or the sentence with which to refuse."""

    def __call__(self, *, brief_digest: str, part_digest: str, set_pk: int) -> str | None: ...


UNREGISTERED = "nobody here says which briefs are frozen and measuring, so the held-out part stays sealed"

_registered: list[MayOpen] = []


def register(may_open: MayOpen) -> None:
    _registered[:] = [may_open]


def why_sealed(*, brief_digest: str, part_digest: str, set_pk: int) -> str | None:
    if not _registered:
        return UNREGISTERED
    return _registered[0](brief_digest=brief_digest, part_digest=part_digest, set_pk=set_pk)
