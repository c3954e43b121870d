from loadtests.models.campaign import Boot, Campaign, SuiteRun, Trial
from loadtests.models.configuration import Configuration
from loadtests.models.removal import Removal
from loadtests.models.traffic import TrafficImport, TrafficPart, TrafficSet

__all__ = [
    "Boot",
    "Campaign",
    "Configuration",
    "Removal",
    "SuiteRun",
    "TrafficImport",
    "TrafficPart",
    "TrafficSet",
    "Trial",
]
