"""One run of the behaviour suite where nothing differs: the baseline, the baseline again, and the same target behind a
drafter whose exact rule leaves its output as it is."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from aiohttp import web

from loadtests.behaviour.collect import collect
from loadtests.behaviour.greedy import TIE_NATS
from loadtests.behaviour.judge import judge
from loadtests.behaviour.plan import SuitePlan
from loadtests.behaviour.result import SuiteResult
from loadtests.configurations import Speculative
from loadtests.generator.endpoint import Endpoint
from loadtests.simulator import preset
from loadtests.simulator.engine import Engine
from loadtests.simulator.model import Nuisances, changed, speculation_of
from loadtests.simulator.pace import Pace
from loadtests.simulator.server import HOST, application
from tests.support.exchanges import Answer, Exchange
from tests.support.faults import Fault
from tests.support.faulty_proxy import FaultyProxy
from tests.support.retelling import flipping, is_plain, retold

DRAFTER = Speculative(method="dflash", num_speculative_tokens=4)
MODEL = "simulated"
SPEED = 1e6
# A target that rounds: of tied greedy tokens so many are the next best one, in whichever arm.
ROUNDED = 0.3
WORLDS = {"exact": 0.0, "rounding": ROUNDED}


async def served(setting: Speculative | None, stack: AsyncExitStack) -> str:
    model = changed(preset("cpu-2core"), {"nuisances": Nuisances()})
    engine = Engine(model, speculation_of(model, setting), pace=Pace(model.nuisances, 1), seed=1)
    runner = web.AppRunner(application(engine, speed=SPEED, model=MODEL), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    await web.TCPSite(runner, HOST, 0).start()
    return "http://{}:{}".format(*runner.addresses[0][:2])


def rounding(share: float) -> Fault:
    async def act(one: Exchange) -> Answer:
        if not one.asked.is_greedy or not is_plain(one.asked):
            return await one.ask()
        return await retold(one, flipping(share, within=TIE_NATS))

    return Fault("tied greedy tokens change places in every arm alike", act)


@asynccontextmanager
async def three_servers(world: str, number: int) -> AsyncIterator[dict[str, str]]:
    """Addresses of the arms; the control is the baseline's server."""
    async with AsyncExitStack() as stack:
        baseline, candidate = await served(None, stack), await served(DRAFTER, stack)
        found = {"baseline": baseline, "control": baseline, "candidate": candidate}
        if WORLDS[world]:
            for place, (arm, address) in enumerate(found.items()):
                proxy = await stack.enter_async_context(FaultyProxy(address, seed=3 * number + place).serving())
                proxy.fault = rounding(WORLDS[world])
                found[arm] = proxy.base_url
        yield found


async def run(plan: SuitePlan, world: str, number: int) -> SuiteResult:
    async with three_servers(world, number) as addresses:
        answers: dict[str, Any] = {
            arm: await collect(Endpoint(address, MODEL), plan, server=arm)  # type: ignore[arg-type]
            for arm, address in addresses.items()
        }
    return judge(plan, **answers)


def one_run(plan: SuitePlan, world: str, number: int) -> SuiteResult:
    return asyncio.run(run(plan, world, number))
