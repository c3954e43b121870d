"""The HTTP API, version 1: docs/api.md."""

from typing import Any

from ninja import NinjaAPI
from ninja.openapi.schema import OpenAPISchema

from decisions.api import briefs, ledger, people, routes, services, traffic, trials
from decisions.api.auth import Token
from decisions.api.problems import CONTENT_TYPE, Problem, answer_with_problems


class Api(NinjaAPI):
    def get_openapi_schema(self, **asked: Any) -> OpenAPISchema:
        """Each operation with the scope it takes, and with how it says that something is wrong."""
        document = super().get_openapi_schema(**asked)
        schema = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
        document["components"]["schemas"] |= {**schema.pop("$defs"), "Problem": schema}
        wrong = {"schema": {"$ref": "#/components/schemas/Problem"}}
        scopes = scopes_by_operation(self)
        for path in document["paths"].values():
            for operation in path.values():
                operation["responses"]["default"] = {"description": "A problem", "content": {CONTENT_TYPE: wrong}}
                operation["x-scope"] = scopes[operation["operationId"]]
        return document


def scopes_by_operation(api: NinjaAPI) -> dict[str, str]:
    """By operation id: a scope, ``any`` of them, or ``none`` where no token is asked for."""
    found = {}
    for _, router in api._routers:
        for view in router.path_operations.values():
            for one in view.operations:
                tokens = [auth for auth in one.auth_callbacks if isinstance(auth, Token)]
                scope = (tokens[0].scope or "any") if tokens else "none"
                found[one.operation_id or api.get_openapi_operation_id(one)] = scope
    return found


api = Api(
    title="Draftproof",
    version="1",
    description=(
        "What engineers, workers and deployment pipelines do. Nothing here signs: owners approve, reject and revoke on "
        "the pages, with their own credentials. Errors are problem documents (RFC 9457)."
    ),
    urls_namespace="api",
    # The interactive page would load its scripts from another host; the document itself is at openapi.json.
    docs_url=None,
)
answer_with_problems(api)
api.add_router("/token", people.router)
api.add_router("/services", services.router)
api.add_router("/routes", routes.router)
api.add_router("/traffic", traffic.router)
api.add_router("/briefs", briefs.router)
api.add_router("/ledger", ledger.router)
api.add_router("", trials.router)
