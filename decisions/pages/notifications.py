"""Which mails a person gets."""

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from decisions.pages.access import require
from decisions.rules.notices import HAPPENINGS
from decisions.rules.who_may import OPERATOR
from decisions.selectors.messages import mail_switches, mails_to
from decisions.services.refused import Refused
from decisions.services.set_mail_switches import set_mail_switches


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def notifications(request: HttpRequest) -> HttpResponse:
    account = require(request)
    refusal = ""
    if request.method == "POST":
        try:
            changed = set_mail_switches(person=account, wanted=request.POST.getlist("mail"))
        except Refused as refused:
            refusal = str(refused)
        else:
            said = "This is so from now on." if changed else "Nothing has changed: it was so already."
            messages.success(request, said)
            return redirect("notifications")
    switches = mail_switches(account)
    context = {
        "switches": [(name, one.label, switches[name]) for name, one in HAPPENINGS.items()],
        "refusal": refusal,
        "email": account.email,
        "sends_mail": bool(settings.EMAIL_URL),
        "sender": settings.DEFAULT_FROM_EMAIL,
        "mails": mails_to(account),
        "services": account.owned_services.order_by("slug"),
        "is_operator": OPERATOR in account.group_names,
    }
    return render(request, "account/notifications.html", context, status=422 if refusal else 200)
