"""`vctl-engine`: serve a base model with adapters, make both from a seed, answer prompts.

Imports that cost time (torch above all) come where they are used: `--help` is instant.
"""

# ruff: noqa: PLC0415

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from vctl_plans.errors import VctlError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"auto_envvar_prefix": "VCTL_ENGINE"},
    help="The torch reference engine: a small real transformer with LoRA and a prefix cache.",
)

Base = Annotated[Path, typer.Option(help="Directory of the base model.")]
Threads = Annotated[int, typer.Option(min=1, help="CPU threads of one computation.")]


class Device(StrEnum):
    """Where the model runs."""

    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


DeviceOption = Annotated[Device, typer.Option(help="auto: CUDA when there is one.")]


@app.command()
def serve(
    *,
    base: Base,
    served_name: Annotated[
        str, typer.Option(help="The base's model name; its directory's name if not given.")
    ] = "",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free port.")] = 8000,
    port_file: Annotated[
        Path | None, typer.Option(help="File to write the port to, once requests are answered.")
    ] = None,
    device: DeviceOption = Device.AUTO,
    threads: Threads = 1,
    max_loras: Annotated[int, typer.Option(min=0, help="Adapters at a time.")] = 8,
    max_lora_rank: Annotated[int, typer.Option(min=1, help="Largest rank taken.")] = 64,
    cache_blocks: Annotated[
        int, typer.Option(min=0, help="Prefix cache size in blocks of 16 tokens; 0: none.")
    ] = 2048,
    max_running: Annotated[
        int, typer.Option(min=1, help="Requests that generate at a time; more wait.")
    ] = 64,
    token_delay_ms: Annotated[
        float, typer.Option(min=0, help="Pause after each token of a request, for tests.")
    ] = 0.0,
    shutdown_timeout: Annotated[
        float, typer.Option(min=0, help="Seconds that requests have to finish after SIGTERM.")
    ] = 5.0,
    fault_file: Annotated[
        Path | None,
        typer.Option(
            help="For tests: a file that names, one a line, models that answer 500, or after"
            " 'stale' those that answer from what others left in the cache;"
            " read at each request."
        ),
    ] = None,
) -> None:
    """Serve a base model and its adapters, OpenAI-compatible, until SIGTERM."""
    from vctl_agent import log

    log.configure()
    from vctl_agent.engines.torch import serving

    serving.serve(
        serving.Settings(
            base=str(base),
            served_name=served_name or base.resolve().name,
            host=host,
            port=port,
            port_file=port_file,
            device=device,
            threads=threads,
            max_loras=max_loras,
            max_lora_rank=max_lora_rank,
            cache_blocks=cache_blocks,
            max_running=max_running,
            token_delay_s=token_delay_ms / 1000,
            shutdown_timeout_s=shutdown_timeout,
            fault_file=fault_file,
        )
    )


@app.command()
def make_base(
    folder: Annotated[Path, typer.Argument(help="Directory to make.")],
    *,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same bytes.")],
    hidden: Annotated[int, typer.Option(min=8, help="Width; a multiple of twice --heads.")] = 64,
    layers: Annotated[int, typer.Option(min=1, help="Layers.")] = 2,
    heads: Annotated[int, typer.Option(min=1, help="Attention heads.")] = 4,
    context: Annotated[int, typer.Option(min=32, help="Tokens of prompt and answer.")] = 512,
) -> None:
    """Make a base model from a seed."""
    from vctl_agent.engines.torch import making
    from vctl_agent.engines.torch.model import ModelConfig

    config = ModelConfig(
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=context,
    )
    making.make_base(folder, seed=seed, config=config)


@app.command()
def make_adapter(
    folder: Annotated[Path, typer.Argument(help="Directory to make.")],
    *,
    base: Base,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same bytes.")],
    rank: Annotated[int, typer.Option(min=1, help="LoRA's r.")] = 8,
    targets: Annotated[str, typer.Option(help="Of q_proj,k_proj,v_proj,o_proj.")] = "q_proj,v_proj",
) -> None:
    """Make a LoRA adapter for a base model from a seed."""
    from vctl_agent.engines.torch import making
    from vctl_agent.engines.torch.checkpoint import read_config

    making.make_adapter(
        folder,
        base=str(base),
        config=read_config(base),
        seed=seed,
        rank=rank,
        targets=tuple(name.strip() for name in targets.split(",")),
    )


@app.command()
def answer(
    *,
    base: Base,
    prompts: Annotated[Path, typer.Option(help='JSON: a list of texts or {"messages": [...]}.')],
    adapter: Annotated[Path | None, typer.Option(help="Directory of an adapter.")] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Tokens of each answer.")] = 16,
    ignore_eos: Annotated[bool, typer.Option("--ignore-eos", help="Go on to the end.")] = False,
    device: DeviceOption = Device.AUTO,
    threads: Threads = 1,
) -> None:
    """Answer prompts greedily, one by one and without any cache, as JSON on stdout.

    What a server should have said: the reference that a served answer is compared with.
    """
    from vctl_agent.engines.torch.checkpoint import load_base
    from vctl_agent.engines.torch.device import chosen_device, use_threads
    from vctl_agent.engines.torch.generate import Engine
    from vctl_agent.engines.torch.lora import load_adapter
    from vctl_agent.engines.torch.oracle import answers

    use_threads(threads)
    loaded = load_base(str(base), device=chosen_device(device))
    tuned = None
    if adapter is not None:
        rank = loaded.model.config.hidden_size  # a higher one would make no sense
        tuned = load_adapter("", str(adapter), base=loaded, max_rank=rank)
    document = answers(
        Engine(loaded, cache_blocks=0),
        prompts,
        adapter=tuned,
        max_tokens=max_tokens,
        ignore_eos=ignore_eos,
    )
    sys.stdout.buffer.write(document + b"\n")


def main() -> None:
    """Run `vctl-engine`: exit 0 as asked, 1 for what could not be done, 2 for wrong usage."""
    try:
        app()
    except VctlError as error:
        typer.echo(f"vctl-engine: {error.message}", err=True)
        if error.hint:
            typer.echo(f"try: {error.hint}", err=True)
        sys.exit(1)
