"""The HTTP API, version 1."""

from ninja import NinjaAPI

from decisions.api import routes

api = NinjaAPI(
    title="Draftproof",
    version="1",
    description="What the serving stack reads: which speculative setting a route may run.",
    urls_namespace="api",
    # The interactive page would load its scripts from another host; the document itself is at openapi.json.
    docs_url=None,
)
api.add_router("/routes", routes.router)
