"""The pages, grouped as the navigation is. The API has its own addresses under /api/v1/."""

from django.urls import path

from decisions.pages import brief_tabs, briefs, inbox, ledger, runs, services, session, signing, traffic

REVISION = "briefs/<int:brief>/<int:number>/"

urlpatterns = [
    path("sign-in/", session.SignIn.as_view(), name="sign-in"),
    path("sign-out/", session.sign_out, name="sign-out"),
    path("", inbox.inbox, name="inbox"),
    path("running/", inbox.inbox_running, name="inbox-running"),
    path("services/", services.services, name="services"),
    path("services/<slug:slug>/", services.service, name="service"),
    path("services/<slug:slug>/<slug:route>/", services.route, name="route"),
    path("services/<slug:slug>/<slug:route>/revoke/", services.revoke, name="revoke"),
    path("briefs/", briefs.briefs, name="briefs"),
    path("briefs/new/", briefs.new, name="brief-new"),
    path("briefs/<int:brief>/", briefs.latest, name="brief-latest"),
    path(REVISION, brief_tabs.brief, name="brief"),
    path(REVISION + "edit/", briefs.edit, name="brief-edit"),
    path(REVISION + "act/<slug:act>/", briefs.act, name="brief-act"),
    path(REVISION + "progress/", brief_tabs.progress, name="brief-progress"),
    path(REVISION + "tuning/", brief_tabs.tuning, name="brief-tuning"),
    path(REVISION + "held-out/", brief_tabs.held_out, name="brief-held-out"),
    path(REVISION + "sign-off/", signing.sign_off, name="brief-sign-off"),
    path(REVISION + "sign-off/statement/", signing.statement, name="brief-statement"),
    path(REVISION + "sign-off/sign/", signing.sign, name="brief-sign"),
    path(REVISION + "history/", brief_tabs.history, name="brief-history"),
    path("traffic/", traffic.traffic, name="traffic"),
    path("traffic/<int:pk>/", traffic.traffic_set, name="traffic-set"),
    path("runs/", runs.runs, name="runs"),
    path("runs/live/", runs.runs_live, name="runs-live"),
    path("runs/boots/<int:pk>/", runs.boot, name="boot"),
    path("runs/boots/<int:pk>/live/", runs.boot_live, name="boot-live"),
    path("runs/boots/<int:pk>/fault/", runs.fault, name="declare-fault"),
    path("runs/trials/<int:pk>/records/", runs.records, name="records"),
    path("history/", ledger.ledger, name="ledger"),
]
