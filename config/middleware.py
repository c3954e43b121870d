"""What no page and no API may be asked with: characters that text can't hold, numbers that no row can have."""

from collections.abc import Callable, Iterable
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, QueryDict, UnreadablePostError

NUL = "\0"
LARGEST_KEY = 2**63 - 1


class PlainInput:
    """400 for a NUL, which PostgreSQL takes in no text; 404 for a number in a path beyond the largest key."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if any(NUL in text for text in (request.path, *request.COOKIES.values(), *texts_of(request.GET))):
            return refused()
        return self.get_response(request)

    def process_view(
        self, request: HttpRequest, view: Callable[..., Any], args: Iterable[Any], kwargs: dict[str, Any]
    ) -> HttpResponse | None:
        if any(isinstance(value, int) and value > LARGEST_KEY for value in kwargs.values()):
            raise Http404("no row has such a number")
        # The form's fields alone: what is in an uploaded file is its reader's business.
        return refused() if any(NUL in text for text in texts_of(form_of(request))) else None


def texts_of(values: QueryDict) -> Iterable[str]:
    for name, entries in values.lists():
        yield name
        yield from entries


def form_of(request: HttpRequest) -> QueryDict:
    try:
        return request.POST
    except UnreadablePostError:  # whoever sent it is gone
        return QueryDict()


def refused() -> HttpResponse:
    sentence = "The request holds the character NUL, which no text here can hold.\n"
    return HttpResponse(sentence, status=400, content_type="text/plain; charset=utf-8")
