"""A POST that is sent twice is done once: the second gets the first one's answer."""

from collections.abc import Callable
from dataclasses import dataclass

from django.db import IntegrityError, transaction

from decisions.models import Account, AnsweredPost
from decisions.services.refused import Refused


class KeyUsed(ValueError):
    """The key came with another request."""


@dataclass(frozen=True)
class Answer:
    status: int
    content: bytes
    again: bool = False


def answer_once(*, person: Account, key: str, asked: str, answer: Callable[[], Answer]) -> Answer:
    """``asked``: digest of the request. The key is claimed before anything is done, by the database's own constraint,
    so of two at once one does it. Where the act fails or is refused nothing was done, and the key is free again. Where
    the process ends within it the key stays claimed: nobody does twice what may have been done."""
    try:
        with transaction.atomic():
            claim = AnsweredPost.objects.create(person=person, key=key, asked=asked)
    except IntegrityError:
        return earlier_answer(person, key, asked)
    try:
        given = answer()
    except BaseException:
        claim.delete()
        raise
    AnsweredPost.objects.filter(pk=claim.pk).update(status=given.status, content=given.content)
    return given


def earlier_answer(person: Account, key: str, asked: str) -> Answer:
    earlier = AnsweredPost.objects.filter(person=person, key=key).first()
    if earlier is None:
        raise Refused("the first request with this Idempotency-Key has just failed: send it again")
    if earlier.asked != asked:
        raise KeyUsed("this Idempotency-Key came with another request: use a new key for each act")
    if earlier.status is None:
        raise Refused(
            "the first request with this Idempotency-Key is still being answered: ask again in a while; where it stays "
            "so, look whether it was done before you use a new key"
        )
    return Answer(earlier.status, bytes(earlier.content or b""), again=True)
