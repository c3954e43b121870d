from django.urls import include, path

from config import health
from decisions.api import api

urlpatterns = [
    path("livez", health.livez),
    path("readyz", health.readyz),
    path("api/v1/", api.urls),
    path("", include("decisions.pages.urls")),
]
