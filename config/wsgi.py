import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
application = get_wsgi_application()

# Only now are the apps there that it needs.
from loadtests.checks import require_evidence_store  # noqa: E402

require_evidence_store()
