from django.urls import include, path

from decisions.api import api

urlpatterns = [
    path("api/v1/", api.urls),
    path("", include("decisions.pages.urls")),
]
