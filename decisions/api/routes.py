from django.http import Http404, HttpRequest, HttpResponse
from ninja import Router

from decisions.models import Route
from decisions.selectors.route_configuration import route_configuration
from loadtests.canonical import canonical, digest

router = Router(tags=["routes"])


@router.api_operation(
    ["GET", "HEAD"], "/{slug}/configuration", summary="The speculative setting in force on a route, or none"
)
def read_configuration(request: HttpRequest, slug: str) -> HttpResponse:
    """Cacheable by its ETag: send ``If-None-Match`` and take 304 as "nothing has changed"."""
    route = Route.objects.select_related("service").filter(slug=slug).first()
    if route is None:
        raise Http404(f"there is no route {slug}")
    content = canonical(route_configuration(route))
    etag = f'"{digest(content)}"'
    if etag in [one.strip().removeprefix("W/") for one in request.headers.get("If-None-Match", "").split(",")]:
        return with_validator(HttpResponse(status=304), etag)
    return with_validator(HttpResponse(content, content_type="application/json"), etag)


def with_validator(response: HttpResponse, etag: str) -> HttpResponse:
    response["ETag"] = etag
    # Revoking takes effect on the next read: a cache may keep the answer but must ask before it serves it.
    response["Cache-Control"] = "no-cache"
    return response
