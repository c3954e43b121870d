"""Which engine a configuration is started on: its runtime says so, and the settings say where things lie."""

from collections.abc import Callable
from pathlib import Path

from django.conf import settings

from loadtests.checkpoints import read_facts
from loadtests.configurations import Runtime, Speculative
from workers.engines import remote, simulated, vllm
from workers.engines.base import EngineUnfit, Order, RunningEngine
from workers.engines.vllm import installed_runtime
from workers.target import find_checkpoint

BLOCK_DRAFTERS = ("dflash", "dspark")


def start(order: Order) -> RunningEngine:
    """Raises EngineFailed, EngineUnfit, EngineStopped or TargetError; nothing is left running then."""
    return STARTS[order.configuration.runtime.engine](order)


def start_vllm(order: Order) -> RunningEngine:
    configuration = order.configuration
    check_runtime(configuration.runtime)
    models = Path(settings.MODELS_DIR)
    speculative = configuration.speculative
    drafter_path = find_checkpoint(models, speculative.drafter) if speculative and speculative.drafter else None
    if speculative and drafter_path:
        check_block(speculative, drafter_path)
    return vllm.start(
        configuration,
        engine_python=Path(settings.ENGINE_PYTHON),
        model_path=find_checkpoint(models, configuration.target),
        drafter_path=drafter_path,
        directory=order.directory,
        should_stop=order.should_stop,
        on_spawn=order.on_spawn,
    )


def check_runtime(runtime: Runtime) -> None:
    """The plan names engine, distribution and version: another one would be another configuration."""
    found = installed_runtime(Path(settings.ENGINE_PYTHON))
    if runtime != found:
        wanted = f"{runtime.engine} by {runtime.distribution} {runtime.version}"
        raise EngineUnfit(f"the plan needs {wanted}; here is {found.engine} by {found.distribution} {found.version}")


def check_block(speculative: Speculative, drafter_path: Path) -> None:
    """The engine takes any K in silence, and what lies beyond the block that the drafter was trained for is noise."""
    block = read_facts(drafter_path).trained_block if speculative.method in BLOCK_DRAFTERS else None
    if block is not None and speculative.num_speculative_tokens > block:
        raise EngineUnfit(
            f"K = {speculative.num_speculative_tokens} is above the block of {block} that {drafter_path.name} was "
            "trained for: lower K"
        )


def start_simulated(order: Order) -> RunningEngine:
    return simulated.start(
        order.configuration,
        models_dir=Path(settings.MODELS_DIR),
        directory=order.directory,
        seed=order.seed,
        speed=settings.SIMULATED_SPEED,
        should_stop=order.should_stop,
        on_spawn=order.on_spawn,
    )


def start_remote(order: Order) -> RunningEngine:
    return remote.start(
        order.configuration,
        house=remote.House(settings.REMOTE_ENGINES, settings.REMOTE_HOSTS, settings.READ_VARIABLE),
        directory=order.directory,
        should_stop=order.should_stop,
        on_spawn=order.on_spawn,
    )


STARTS: dict[str, Callable[[Order], RunningEngine]] = {
    "vllm": start_vllm,
    "simulated": start_simulated,
    "remote": start_remote,
}
