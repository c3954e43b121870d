from decisions.models.account import Account
from decisions.models.brief import Brief, BriefCampaign, BriefRevision
from decisions.models.event import Event
from decisions.models.imported_trial import ImportedTrial
from decisions.models.release import Release
from decisions.models.service import Route, Service
from decisions.models.signature import Signature
from decisions.models.taken_look import TakenLook
from decisions.models.verdict import Verdict

__all__ = [
    "Account",
    "Brief",
    "BriefCampaign",
    "BriefRevision",
    "Event",
    "ImportedTrial",
    "Release",
    "Route",
    "Service",
    "Signature",
    "TakenLook",
    "Verdict",
]
