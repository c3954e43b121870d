"""Is the process alive, and can it do its work? For whoever restarts or routes."""

from django.db import DatabaseError, connection
from django.http import HttpRequest, HttpResponse


def livez(request: HttpRequest) -> HttpResponse:
    return HttpResponse("ok\n", content_type="text/plain")


def readyz(request: HttpRequest) -> HttpResponse:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError:
        return HttpResponse("the database can't be reached\n", content_type="text/plain", status=503)
    return HttpResponse("ok\n", content_type="text/plain")
