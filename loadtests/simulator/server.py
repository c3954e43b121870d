"""``python -m loadtests.simulator.server``: the simulated engine behind HTTP, as a vLLM server answers."""

import asyncio
import json
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any, TypeVar

import click
import uvloop
from aiohttp import web
from pydantic import BaseModel, ValidationError

from loadtests.configurations import EngineArguments, Speculative
from loadtests.simulator.answering import Answering
from loadtests.simulator.api import AskedChat, AskedCompletion, AskedText, AskedTokens, Rejected
from loadtests.simulator.engine import Engine
from loadtests.simulator.exposition import metrics_text
from loadtests.simulator.language import SIZE, decoded, encoded
from loadtests.simulator.live import Live
from loadtests.simulator.model import EngineModel, read_model, speculation_of
from loadtests.simulator.pace import Pace
from loadtests.simulator.presets import PRESETS, preset

HOST = "127.0.0.1"
VERSION = "simulated-1"
MAX_BODY_BYTES = 64 << 20
ANSWERING = web.AppKey("answering", Answering)
LIVE = web.AppKey("live", Live)
Kind = TypeVar("Kind", bound=BaseModel)


def error_document(message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "BadRequestError", "param": None, "code": 400}}


def event(document: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(document, ensure_ascii=False)}\n\n".encode()


def first_problem(error: ValidationError) -> str:
    one = error.errors()[0]
    return f"{'.'.join(str(part) for part in one['loc']) or 'the body'}: {one['msg']}"


async def asked_of(request: web.Request, kind: type[Kind]) -> Kind:
    try:
        return kind.model_validate_json(await request.read())
    except ValidationError as error:
        raise web.HTTPBadRequest(
            text=json.dumps(error_document(first_problem(error))), content_type="application/json"
        ) from None


async def chat(request: web.Request) -> web.StreamResponse:
    return await respond(request, await asked_of(request, AskedChat))


async def completions(request: web.Request) -> web.StreamResponse:
    return await respond(request, await asked_of(request, AskedCompletion))


async def respond(request: web.Request, asked: AskedChat | AskedCompletion) -> web.StreamResponse:
    answering = request.app[ANSWERING]
    if asked.stream:
        return await streamed(request, answering, asked)
    try:
        work = answering.work(asked)
    except Rejected as rejected:
        return web.json_response(error_document(str(rejected)), status=400)
    return web.json_response(await answering.whole(work))


async def streamed(
    request: web.Request, answering: Answering, asked: AskedChat | AskedCompletion
) -> web.StreamResponse:
    """A rejected request is told inside HTTP 200, as vLLM does once it has promised a stream."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
    await response.prepare(request)
    async with aclosing(documents(answering, asked)) as told:
        async for document in told:
            await response.write(event(document))
    await response.write(b"data: [DONE]\n\n")
    await response.write_eof()
    return response


async def documents(answering: Answering, asked: AskedChat | AskedCompletion) -> AsyncGenerator[dict[str, Any], None]:
    try:
        work = answering.work(asked)
    except Rejected as rejected:
        yield error_document(str(rejected))
        return
    async with aclosing(answering.chunks(work)) as chunks:
        async for chunk in chunks:
            yield chunk


async def tokenize(request: web.Request) -> web.Response:
    asked = await asked_of(request, AskedTokens)
    tokens = encoded(asked.prompt)
    limit = request.app[ANSWERING].card["max_model_len"]
    return web.json_response({"count": len(tokens), "max_model_len": limit, "tokens": tokens})


async def detokenize(request: web.Request) -> web.Response:
    asked = await asked_of(request, AskedText)
    if any(not 0 <= token < SIZE for token in asked.tokens):
        return web.json_response(error_document(f"a token id lies outside the vocabulary of {SIZE}"), status=400)
    return web.json_response({"prompt": decoded(asked.tokens)})


async def models(request: web.Request) -> web.Response:
    return web.json_response({"object": "list", "data": [request.app[ANSWERING].card]})


async def version(request: web.Request) -> web.Response:
    return web.json_response({"version": VERSION})


async def health(request: web.Request) -> web.Response:
    return web.Response()


async def metrics(request: web.Request) -> web.Response:
    text = metrics_text(request.app[LIVE], request.app[ANSWERING].model)
    return web.Response(text=text, content_type="text/plain", charset="utf-8")


def application(
    engine: Engine,
    *,
    speed: float = 1.0,
    model: str = "simulated",
    fingerprint: str | None = None,
    rounding: float = 0.0,
) -> web.Application:
    app = web.Application(client_max_size=MAX_BODY_BYTES)
    live = Live(engine, speed)
    app[LIVE] = live
    app[ANSWERING] = Answering(live, model=model, fingerprint=fingerprint or engine.model.digest, rounding=rounding)
    app.router.add_post("/v1/chat/completions", chat)
    app.router.add_post("/v1/completions", completions)
    app.router.add_post("/tokenize", tokenize)
    app.router.add_post("/detokenize", detokenize)
    routes: dict[str, Callable[[web.Request], Awaitable[web.Response]]] = {
        "/v1/models": models,
        "/version": version,
        "/health": health,
        "/metrics": metrics,
    }
    for path, handler in routes.items():
        app.router.add_get(path, handler)
    app.cleanup_ctx.append(stepping)
    return app


async def stepping(app: web.Application) -> AsyncIterator[None]:
    task = asyncio.create_task(app[LIVE].run())
    yield
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def serve(app: web.Application, host: str, port: int, told: dict[str, Any]) -> None:
    """Until SIGTERM or SIGINT. The first line on standard output is the address, as JSON."""
    # A client that leaves cancels its handler, and that stops its sequences.
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    site = web.TCPSite(runner, host, port)
    await site.start()
    address = runner.addresses[0]
    click.echo(json.dumps({"address": f"http://{address[0]}:{address[1]}"} | told))
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await stop.wait()
    await runner.cleanup()


def engine_of(model: EngineModel, speculative: str | None, *, seed: int, content_seed: int) -> Engine:
    setting = None if speculative is None else Speculative.model_validate_json(speculative)
    pace = Pace(model.nuisances, seed)
    return Engine(model, speculation_of(model, setting), pace=pace, seed=seed, content_seed=content_seed)


def limited(model: EngineModel, arguments: str | None) -> EngineModel:
    return model if arguments is None else model.with_arguments(EngineArguments.model_validate_json(arguments))


@click.command()
@click.option("--preset", "name", default="cpu-2core", type=click.Choice(sorted(PRESETS)), show_default=True)
@click.option("--model", "document", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Saved model.")
@click.option("--arguments", metavar="JSON", help="Engine arguments of a configuration, over the model's limits.")
@click.option("--speculative", metavar="JSON", help="Speculative setting of a configuration; without it there is none.")
@click.option("--host", default=HOST, show_default=True)
@click.option("--port", default=0, type=click.IntRange(0, 65_535), help="0 takes a free one.")
@click.option("--speed", default=1.0, type=click.FloatRange(1e-3, 1e6), show_default=True, help="Engine seconds per s.")
@click.option("--seed", default=0, show_default=True, help="The boot's own seed.")
@click.option("--content-seed", default=0, show_default=True, help="Which texts are easy, how long answers are.")
@click.option(
    "--rounding",
    default=0.0,
    type=click.FloatRange(0, 1),
    show_default=True,
    help="Nats by which the logits of two answers to one request differ (standard deviation).",
)
@click.option("--served-model-name", default="simulated", show_default=True)
@click.option("--fingerprint-value", help="Echoed as system_fingerprint; else the model document's digest.")
def main(
    name: str,
    document: Path | None,
    arguments: str | None,
    speculative: str | None,
    host: str,
    port: int,
    speed: float,
    seed: int,
    content_seed: int,
    rounding: float,
    served_model_name: str,
    fingerprint_value: str | None,
) -> None:
    """Serve a simulated engine until it is told to stop."""
    try:
        model = limited(preset(name) if document is None else read_model(document), arguments)
        engine = engine_of(model, speculative, seed=seed, content_seed=content_seed)
    except ValueError as error:
        said = first_problem(error) if isinstance(error, ValidationError) else str(error)
        raise click.ClickException(said) from None
    app = application(engine, speed=speed, model=served_model_name, fingerprint=fingerprint_value, rounding=rounding)
    told = {
        "model": served_model_name,
        "engine_model": model.name,
        "engine_model_sha256": model.digest,
        "kv_cache_tokens": engine.capacity * model.block_size,
        "speed": speed,
    }
    uvloop.run(serve(app, host, port, told))


if __name__ == "__main__":
    main()
