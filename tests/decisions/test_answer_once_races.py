"""The same POST from many at once, on whichever database this is: it is done once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Lock
from typing import Any

import pytest
from django.db import connection

from decisions.models import Account, AnsweredPost
from decisions.services.answer_once import Answer, KeyUsed, answer_once
from decisions.services.refused import Refused

AT_ONCE = 12


@pytest.mark.django_db(transaction=True)
def test_of_many_at_once_one_is_done() -> None:
    person = Account.objects.create_user("engineer")
    together, lock, done = Barrier(AT_ONCE), Lock(), list[int]()

    def act() -> Answer:
        with lock:
            done.append(1)
        return Answer(201, b"made")

    def ask(number: int) -> Any:
        together.wait(timeout=30)
        try:
            return answer_once(person=person, key="one", asked="a" if number else "b", answer=act)
        except (Refused, KeyUsed) as error:
            return type(error)
        finally:
            connection.close()

    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(pool.map(ask, range(AT_ONCE)))
    assert len(done) == 1
    assert [one for one in answers if one == Answer(201, b"made")] == [Answer(201, b"made")]
    others = [one for one in answers if one != Answer(201, b"made")]
    assert all(one in (Answer(201, b"made", again=True), Refused, KeyUsed) for one in others)
    assert KeyUsed in others
    assert AnsweredPost.objects.get().status == 201


@pytest.mark.django_db
def test_what_crashes_leaves_its_key_free() -> None:
    person = Account.objects.create_user("engineer")

    def crash() -> Answer:
        raise RuntimeError("the disk is full")

    with pytest.raises(RuntimeError):
        answer_once(person=person, key="one", asked="a", answer=crash)
    assert answer_once(person=person, key="one", asked="b", answer=lambda: Answer(200, b"")).again is False
