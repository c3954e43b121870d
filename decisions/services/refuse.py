from typing import NoReturn

from decisions import ledger
from decisions.services.refused import Refused
from loadtests import journal


def refuse(act: str, sentence: str, *, subject: str, actor: str) -> NoReturn:
    """Leaves the refused act in the ledger, then refuses it. Call it outside the transaction of the act."""
    with journal.act():
        ledger.append(f"{act}-refused", subject=subject, actor=actor, details={"reason": sentence})
    raise Refused(sentence)
