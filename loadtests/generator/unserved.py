"""What becomes of a plan whose engine never answered: every request failed, and every one is counted."""

from collections.abc import Sequence

from loadtests.evidence.records import RequestRecord
from loadtests.generator.answer import Outcome
from loadtests.generator.endpoint import Endpoint
from loadtests.generator.trial import Trial
from loadtests.traffic.planned import PlannedRequest


def unserved(planned: Sequence[PlannedRequest], *, model: str, level: str, reason: str) -> list[RequestRecord]:
    """The records of a trial that had no server, in plan order; nothing is sent and nothing is waited for."""
    trial = Trial(planned, Endpoint("http://127.0.0.1:9", model))
    for exchange in trial.exchanges:
        trial.end(exchange, Outcome("failed", reason))
    return trial.records(level)
