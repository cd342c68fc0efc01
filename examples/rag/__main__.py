"""Ask questions about a folder of documents, with answers that cite their sources.

    python examples/rag ingest docs/guide
    python examples/rag ask "How do I share a large array between tasks?"
    python examples/rag serve

`ingest` splits text, Markdown and HTML files into chunks, embeds them on a pool of actors and stores them in one SQLite
file. It can be repeated at any time: only changed files are embedded again. `ask` and `serve` start four deployments:
an embedder, a retriever, a reranker and a language model. The page of `serve` is on http://127.0.0.1:8000.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of the package `rag`, here and in the workers

import skate
from rag.documents import CHUNK_SIZE, MAX_BYTES
from rag.embedding import MINILM


def ingest(options: argparse.Namespace) -> None:
    from rag.ingest import ingest

    report = ingest(
        options.folder,
        options.store,
        embeddings=options.embeddings,
        workers=options.workers,
        chunk_size=options.chunk_size,
        max_bytes=int(options.max_megabytes * 1e6),
        on_document=lambda name, chunks: print(f"stored {name}: {chunks} chunks", flush=True),
    )
    for name in report.removed:
        print(f"removed {name}")
    reasons: dict[str, list[str]] = defaultdict(list)
    for name, reason in report.skipped.items():
        reasons[reason].append(name)
    for reason, names in reasons.items():
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        print(f"skipped {', '.join(names[:5])}{more}: {reason}")
    print(
        f"{len(report.written)} documents stored with {report.chunks} chunks, {report.unchanged} unchanged, "
        f"{len(report.removed)} removed, {len(report.skipped)} files skipped; {report.seconds:.1f} s"
    )


def build(options: argparse.Namespace) -> object:
    from rag.app import build_app, generator_config

    generator = generator_config(options.model)
    return build_app(options.store, generator, reranker=options.reranker, relevance=options.relevance)


def ask(options: argparse.Namespace) -> None:
    from skate import serve

    handle = serve.run(build(options), route_prefix=None)
    sources = []
    for event in handle.options(stream=True).answer.remote(options.question):
        if event["type"] == "sources":
            sources = event["sources"]
        elif event["type"] == "text":
            print(event["text"], end="", flush=True)
        else:
            print()
            for source in sources:
                lines = f"lines {source['first_line']}-{source['last_line']}"
                mark = "" if source["number"] in event["cited"] else " (not cited)"
                print(f"[{source['number']}] {source['name']}, {lines}: {source['heading']}{mark}")
            print(
                ", ".join(f"{name} {value:.2f} s" for name, value in event["seconds"].items()),
                file=sys.stderr,
            )
    serve.shutdown()


def run_server(options: argparse.Namespace) -> None:
    from skate import serve

    app = build(options)
    serve.start(http_options={"host": options.host, "port": options.port})
    serve.run(app)
    host, port = serve.address()
    print(f"http://{host}:{port}", flush=True)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        serve.shutdown()


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="rag", description=__doc__.splitlines()[0])
    commands = made.add_subparsers(required=True)
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--store", type=Path, default=Path("rag.sqlite3"), help="the SQLite file")
    asking = argparse.ArgumentParser(add_help=False)
    asking.add_argument(
        "--model", help="a language model: a folder or a GGUF file; by default SmolLM2-135M-Instruct"
    )
    asking.add_argument("--reranker", metavar="MODEL", help="the folder of a cross-encoder")
    asking.add_argument("--relevance", type=float, default=0.3, help="the least score of a source (0.3)")

    command = commands.add_parser("ingest", parents=[shared], help="bring the store up to date with a folder")
    command.add_argument("folder", type=Path)
    command.add_argument(
        "--embeddings", default=MINILM, metavar="MODEL", help="the folder of an embedding model"
    )
    command.add_argument("--workers", type=int, default=1, help="actors that embed (1)")
    command.add_argument("--chunk-size", type=int, default=CHUNK_SIZE, help=f"characters ({CHUNK_SIZE})")
    command.add_argument("--max-megabytes", type=float, default=MAX_BYTES / 1e6, help="skip larger files (5)")
    command.set_defaults(run=ingest)

    command = commands.add_parser("ask", parents=[shared, asking], help="answer one question")
    command.add_argument("question")
    command.set_defaults(run=ask)

    command = commands.add_parser("serve", parents=[shared, asking], help="serve a page to ask questions on")
    command.add_argument("--host", default="127.0.0.1")
    command.add_argument("--port", type=int, default=8000)
    command.set_defaults(run=run_server)
    return made


def main() -> None:
    options = parser().parse_args()
    try:
        options.run(options)
    except (FileNotFoundError, ValueError) as error:
        sys.exit(f"rag: {error}")
    finally:
        skate.shutdown()


if __name__ == "__main__":
    main()
