from decisions.models.account import Account
from decisions.models.api_token import AnsweredPost, ApiToken
from decisions.models.behaviour_result import BehaviourResult
from decisions.models.brief import Brief, BriefCampaign, BriefRevision
from decisions.models.chain_check import ChainCheck
from decisions.models.checkpoint import Checkpoint
from decisions.models.demonstration import Demonstration
from decisions.models.endpoint import Endpoint
from decisions.models.event import Event
from decisions.models.feed_token import FeedToken
from decisions.models.fresh_sign_in import FreshSignIn
from decisions.models.imported_trial import ImportedTrial
from decisions.models.mail_switch import MailSwitch
from decisions.models.message import Message
from decisions.models.policy import SigningPolicy
from decisions.models.release import Release
from decisions.models.review_comment import ReviewComment
from decisions.models.service import Route, Service
from decisions.models.service_cases import ServiceCases
from decisions.models.signature import Signature
from decisions.models.signature_request import SignatureRequest
from decisions.models.signing_key import SigningKey
from decisions.models.taken_look import TakenLook
from decisions.models.verdict import Verdict

__all__ = [
    "Account",
    "AnsweredPost",
    "ApiToken",
    "BehaviourResult",
    "Brief",
    "BriefCampaign",
    "BriefRevision",
    "ChainCheck",
    "Checkpoint",
    "Demonstration",
    "Endpoint",
    "Event",
    "FeedToken",
    "FreshSignIn",
    "ImportedTrial",
    "MailSwitch",
    "Message",
    "Release",
    "ReviewComment",
    "Route",
    "Service",
    "ServiceCases",
    "Signature",
    "SignatureRequest",
    "SigningKey",
    "SigningPolicy",
    "TakenLook",
    "Verdict",
]
