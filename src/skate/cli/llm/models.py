"""`skate llm serve`, `skate llm chat` and `skate llm bench`."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import statistics
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from skate.cli import candidates
from skate.cli.llm.settings import parse_settings
from skate.cli.output import format_option, say, write_row

if TYPE_CHECKING:
    from skate.llm import Engine, SamplingParams

F = TypeVar("F", bound=Callable[..., Any])


def _model_arguments(command: F) -> F:
    """Add the model and the settings of its engine."""
    command = click.option(
        "--engine-arg",
        "arguments",
        metavar="KEY=VALUE",
        multiple=True,
        help="An additional argument of the engine. The value is YAML. Repeatable.",
    )(command)
    command = click.option(
        "--quantization", type=click.Choice(["int4"]), help="Store the weights in 4 bits."
    )(command)
    command = click.option(
        "--max-model-len", type=int, help="The maximum number of tokens of a prompt and its answer."
    )(command)
    command = click.option(
        "--engine",
        type=click.Choice(["auto", "torch", "vllm"]),
        default="auto",
        show_default=True,
        help="What runs the model. auto is vLLM if it is installed and there is a GPU.",
    )(command)
    return click.argument("model", shell_complete=candidates.files)(command)


def _engine_kwargs(
    arguments: tuple[str, ...], max_model_len: int | None, quantization: str | None
) -> dict[str, Any]:
    settings: dict[str, Any] = {"max_model_len": max_model_len, "quantization": quantization}
    for key, value in parse_settings(arguments, "--engine-arg").items():
        settings[key.replace("-", "_")] = value
    return {key: value for key, value in settings.items() if value is not None}


@contextlib.contextmanager
def _errors_in_one_line() -> Iterator[None]:
    """Report errors in the model's files and settings without a traceback."""
    try:
        yield
    except (FileNotFoundError, ImportError, ValueError) as error:
        raise click.ClickException(str(error)) from error


@asynccontextmanager
async def _load(model: str, engine: str, settings: dict[str, Any]) -> AsyncIterator[Engine]:
    from skate.llm import load_engine

    with _errors_in_one_line():
        loaded = await asyncio.to_thread(lambda: load_engine(model, engine=engine, **settings))
    say(loaded.describe())
    try:
        yield loaded
    finally:
        await loaded.close()


@click.command()
@_model_arguments
@click.option("--name", help="The name of the model in requests. Default: the last part of MODEL.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", default=8000, show_default=True, help="The port to listen on; 0 chooses a free one.")
@click.option("--api-key", "api_keys", multiple=True, help="A key that clients must send. Repeatable.")
def serve(
    model: str,
    engine: str,
    max_model_len: int | None,
    quantization: str | None,
    arguments: tuple[str, ...],
    name: str | None,
    host: str,
    port: int,
    api_keys: tuple[str, ...],
) -> None:
    """Serve a model over OpenAI's API until Ctrl-C.

    MODEL is a folder with a model in Hugging Face's format, a GGUF file, or an id on the Hugging Face hub.
    """
    from skate import serve as serving
    from skate.serve.llm import LLMConfig, ModelLoadingConfig, build_openai_app

    name = name or Path(model).stem
    config = LLMConfig(
        model_loading_config=ModelLoadingConfig(model_id=name, model_source=model),
        llm_engine=engine,
        engine_kwargs=_engine_kwargs(arguments, max_model_len, quantization),
    )
    options: dict[str, Any] = (
        {"ingress_cls_config": {"ingress_extra_kwargs": {"api_keys": list(api_keys)}}} if api_keys else {}
    )
    serving.start(http_options={"host": host, "port": port})
    try:
        serving.run(build_openai_app({"llm_configs": [config], **options}))
        bound_host, bound_port = serving.address()
        say(f"Serving {name} at http://{bound_host}:{bound_port}/v1. Press Ctrl-C to stop.")
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()
    finally:
        serving.shutdown()


@click.command()
@_model_arguments
@click.option("--system", help="The system message of the conversation.")
@click.option("--message", help="Ask one question, print the answer, and exit.")
@click.option(
    "--max-tokens",
    type=int,
    help="The maximum number of tokens of an answer. Default: the rest of the context.",
)
@click.option(
    "--temperature",
    type=float,
    help="0 always chooses the most probable token. Default: what the model recommends, or 0.7.",
)
@click.option(
    "--seed", type=int, help="The seed of the random numbers. Runs with the same seed give the same answers."
)
def chat(
    model: str,
    engine: str,
    max_model_len: int | None,
    quantization: str | None,
    arguments: tuple[str, ...],
    system: str | None,
    message: str | None,
    max_tokens: int | None,
    temperature: float | None,
    seed: int | None,
) -> None:
    """Chat with a model in the terminal.

    MODEL is a folder with a model in Hugging Face's format, a GGUF file, or an id on the Hugging Face hub. Ctrl-D ends
    the conversation.
    """
    from skate.llm import SamplingParams

    settings = _engine_kwargs(arguments, max_model_len, quantization)
    with _errors_in_one_line():
        values: dict[str, Any] = {"max_tokens": max_tokens, "temperature": temperature, "seed": seed}
        given = {name: value for name, value in values.items() if value is not None}
        SamplingParams(**given)  # checks them before the model is loaded
    messages = [{"role": "system", "content": system}] if system else []

    async def talk() -> None:
        async with _load(model, engine, settings) as loaded:
            params = SamplingParams(**({"temperature": 0.7} | loaded.sampling_defaults | given))
            questions = iter([message]) if message is not None else _questions()
            while (question := await asyncio.to_thread(next, questions, None)) is not None:
                messages.append({"role": "user", "content": question})
                answer = ""
                with _errors_in_one_line():
                    async for text in _answer(loaded, messages, params):
                        answer += text
                        click.echo(text, nl=False)
                        sys.stdout.flush()
                click.echo()
                messages.append({"role": "assistant", "content": answer})

    asyncio.run(talk())


def _questions() -> Iterator[str]:
    """Yield the lines of standard input that are not blank. In a terminal, show a prompt for each."""
    while True:
        if sys.stdin.isatty():
            click.echo("> ", nl=False, err=True)
        line = sys.stdin.readline()
        if not line:
            return
        if line.strip():
            yield line.rstrip("\n")


_numbers = itertools.count()


async def _answer(
    engine: Engine, messages: list[dict[str, str]], params: SamplingParams
) -> AsyncIterator[str]:
    from skate.llm import GenerationRequest

    tokenizer = engine.tokenizer
    if tokenizer.has_chat_template:
        prompt = tokenizer.encode(tokenizer.apply_chat_template(messages), add_special_tokens=False)
    else:
        prompt = tokenizer.encode("\n".join(each["content"] for each in messages))
    request = GenerationRequest(request_id=str(next(_numbers)), prompt=prompt, params=params)
    async for piece in engine.generate(request):
        yield piece.text


@click.command()
@_model_arguments
@click.option("--streams", default=16, show_default=True, help="The number of concurrent requests.")
@click.option("--input-tokens", default=64, show_default=True, help="The number of tokens of each prompt.")
@click.option("--output-tokens", default=64, show_default=True, help="The number of tokens of each answer.")
@click.option(
    "--text",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="With --quantization: a text for the perplexity. Default: a part of Skate's guide.",
)
@format_option
def bench(
    model: str,
    engine: str,
    max_model_len: int | None,
    quantization: str | None,
    arguments: tuple[str, ...],
    streams: int,
    input_tokens: int,
    output_tokens: int,
    text: Path | None,
    format_: str,
) -> None:
    """Measure how fast a model generates on this machine.

    MODEL is a folder with a model in Hugging Face's format, a GGUF file, or an id on the Hugging Face hub. The prompts
    are random tokens without a common prefix. With --quantization, the perplexity on a text shows what it costs.
    """
    settings = {"max_num_seqs": streams, "max_num_batched_tokens": max(256, streams)}
    settings |= _engine_kwargs(arguments, max_model_len, quantization)

    async def measure() -> dict[str, Any]:
        async with _load(model, engine, settings) as loaded:
            with _errors_in_one_line():
                await _measure(loaded, 1, input_tokens, 2)  # warm up
                return await _measure(loaded, streams, input_tokens, output_tokens)

    row = asyncio.run(measure())
    if quantization is not None:
        row |= _quantization_cost(model, quantization, text)
    write_row(row, format_)


def _quantization_cost(model: str, quantization: str, text: Path | None) -> dict[str, Any]:
    """Return the perplexity with and without a quantization."""
    from skate.llm._perplexity import compare_perplexity

    with _errors_in_one_line():
        found = compare_perplexity(model, text=None if text is None else text.read_text(encoding="utf-8"))
    before, after = found["float32"], found[quantization]
    return {
        "perplexity_float32": round(before, 3),
        f"perplexity_{quantization}": round(after, 3),
        "perplexity_change_percent": round(100 * (after / before - 1), 2),
    }


async def _measure(engine: Engine, streams: int, inputs: int, outputs: int) -> dict[str, Any]:
    """Generate in several streams concurrently, and return the measurements."""
    import random

    from skate.llm import GenerationRequest, SamplingParams

    rng = random.Random(streams)
    started = time.perf_counter()
    first_tokens: list[float] = []

    async def run() -> None:
        request = GenerationRequest(
            request_id=str(next(_numbers)),
            prompt=[rng.randrange(engine.tokenizer.vocab_size) for _ in range(inputs)],
            params=SamplingParams(temperature=0, max_tokens=outputs, ignore_eos=True),
        )
        is_first = True
        async for _ in engine.generate(request):
            if is_first:
                first_tokens.append(time.perf_counter() - started)
                is_first = False

    await asyncio.gather(*(run() for _ in range(streams)))
    elapsed = time.perf_counter() - started
    return {
        "streams": streams,
        "tokens_per_second": round(streams * outputs / elapsed, 1),
        "seconds_to_first_token": round(statistics.median(first_tokens), 3),
        "seconds": round(elapsed, 2),
    }
