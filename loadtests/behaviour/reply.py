"""One answer as the suite keeps it: everything that a server said, in one form for whole and streamed answers. Pure."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

# answered; refused: the server said that it won't (4xx, also inside HTTP 200); failed: anything else.
ReplyStatus = Literal["answered", "refused", "failed"]


@dataclass(frozen=True)
class Token:
    """A returned token with its log probability (natural), as ``logprobs`` tells it. ``text`` may be a piece of a
    character; ``bytes`` then says which. ``top`` are the likeliest (text, logprob), best first."""

    text: str
    # None where what came is no finite number.
    logprob: float | None
    bytes: tuple[int, ...] | None = None
    top: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Call:
    """A tool call; ``arguments`` as they came, joined where they were streamed."""

    name: str
    arguments: str


@dataclass(frozen=True)
class Choice:
    """``pieces`` is the text as it came, one for each chunk that had some; ``token_ids`` and ``tokens`` are None
    where the server didn't tell them."""

    index: int
    pieces: tuple[str, ...] = ()
    token_ids: tuple[int, ...] | None = None
    tokens: tuple[Token, ...] | None = None
    calls: tuple[Call, ...] = ()
    finish_reason: str | None = None
    stop_reason: str | int | None = None

    @property
    def text(self) -> str:
        return "".join(self.pieces)


@dataclass(frozen=True)
class Reply:
    """``http_status`` is None where no answer began; ``inside_200``: the error came inside HTTP 200. ``document`` is
    the whole answer of the engine's tokenizer, and empty for completions."""

    status: ReplyStatus
    choices: tuple[Choice, ...] = ()
    error: str | None = None
    http_status: int | None = None
    inside_200: bool = False
    stream: bool = False
    usage: dict[str, Any] | None = None
    prompt_token_ids: tuple[int, ...] | None = None
    # Per prompt token {token id as text: logprob}; None for the first, which nothing comes before.
    prompt_logprobs: tuple[dict[str, float] | None, ...] | None = None
    # As in ``metrics.speculative_decoding``; None where it wasn't told.
    draft_tokens: int | None = None
    accepted_tokens: int | None = None
    fingerprint: str | None = None
    document: dict[str, Any] = field(default_factory=dict)

    @property
    def choice(self) -> Choice:
        """The first choice; an empty one where none came."""
        return self.choices[0] if self.choices else Choice(0)

    @property
    def text(self) -> str:
        return self.choice.text

    @property
    def output_tokens(self) -> int | None:
        told = (self.usage or {}).get("completion_tokens")
        return told if isinstance(told, int) and not isinstance(told, bool) else None

    def said(self) -> Iterator[str]:
        """Its texts, each put together from the pieces in which it came; a reason is no text."""
        for one in self.choices:
            yield from (one.text, one.finish_reason or "", str(one.stop_reason))
            yield from ("".join(token.text for token in one.tokens or ()), *(call.name for call in one.calls))
            yield from (call.arguments for call in one.calls)
            yield from (text for token in one.tokens or () for text, _ in token.top)
        yield from (self.fingerprint or "", str(self.document.get("prompt")))

    def as_document(self) -> dict[str, Any]:
        return asdict(self)
