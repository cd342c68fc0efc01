"""Runs the blocks of a page one after another, as one program: ``skate run page_program.py BLOCKS RESULTS``.

BLOCKS is a JSON file that `running.py` writes. A line is added to RESULTS when a block starts and when it ends, so
that a reader knows which block the program was in when it came to its end.
"""

from __future__ import annotations

import ast
import faulthandler
import io
import json
import sys
import time
import traceback
import types
from pathlib import Path
from typing import Any


class Output(io.StringIO):
    """Collects what a block prints. Its descriptor is that of the real standard output."""

    def fileno(self) -> int:
        """Return the descriptor of the real standard output."""
        return 1


def main(blocks: Path, results: Path) -> None:
    """Run the blocks in a module `__main__` of their own, whose source is the whole page."""
    page = json.loads(blocks.read_text())
    module = types.ModuleType("__main__")
    module.__file__ = page["file"]
    sys.modules["__main__"] = module
    sys.argv = [page["file"]]
    with results.open("a", buffering=1) as report:
        for block in page["blocks"]:
            report.write(json.dumps({"number": block["number"], "started": True}) + "\n")
            faulthandler.dump_traceback_later(page["timeout"], exit=True)
            result = run(block, module, page["file"])
            faulthandler.cancel_dump_traceback_later()
            report.write(json.dumps({"number": block["number"], "started": False, **result}) + "\n")


def run(block: dict[str, Any], module: types.ModuleType, file: str) -> dict[str, Any]:
    """Run a block; return what it printed, and the last line of its error."""
    started = time.monotonic()
    shown, output = sys.stdout, Output()
    sys.stdout = output
    error = None
    try:
        tree = ast.parse("\n" * block["offset"] + block["code"], file)
        if block["interactive"]:
            exec(compile(ast.Interactive(tree.body), file, "single", dont_inherit=True), module.__dict__)
        else:
            exec(compile(tree, file, "exec", dont_inherit=True), module.__dict__)
    except BaseException as raised:  # a page goes on after a block that raises: later ones may not need it
        error = "".join(traceback.format_exception_only(raised)).strip()
        print(f"--- block {block['number']} raised", file=sys.stderr)
        traceback.print_exc()
    finally:
        sys.stdout = shown
    print(output.getvalue(), end="", flush=True)
    return {"output": output.getvalue(), "error": error, "seconds": time.monotonic() - started}


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
