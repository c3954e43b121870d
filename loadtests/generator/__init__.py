"""The open-loop client: requests leave at their planned time whatever the server does."""

from loadtests.generator.endpoint import APIS, Endpoint
from loadtests.generator.progress import Progress
from loadtests.generator.reach import Reached, Unreachable, reach
from loadtests.generator.trial import TrialRun, WarmUp, run_trial, warm_up

__all__ = [
    "APIS",
    "Endpoint",
    "Progress",
    "Reached",
    "TrialRun",
    "Unreachable",
    "WarmUp",
    "reach",
    "run_trial",
    "warm_up",
]
