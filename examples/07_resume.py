"""Kill a job in the middle of its work, run it again, and find every row written once.

The program starts itself as a job that puts a slow function over 300 rows and writes what it gives with `resume=True`.
The job is killed (`kill -9`) three times, each time a little later; each run goes on where the one before was stopped.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import skate


def slow_square(row):
    """Stand for what takes long: a request, a model; somewhere on the way, the power goes off."""
    time.sleep(0.002)
    if row["id"] == int(os.environ["POWER_CUT_AT"]):
        os.kill(int(os.environ["JOB"]), signal.SIGKILL)
    return {"id": row["id"], "square": row["id"] ** 2}


def job(folder):
    """Write the squares; this is all that a program has to do to be resumable."""
    os.environ["JOB"] = str(os.getpid())
    skate.data.range(300, override_num_blocks=30).map(slow_square).write_parquet(folder, resume=True)
    skate.shutdown()


def rows_in(folder):
    """Count what a reader of the folder sees."""
    return skate.data.read_parquet(folder).count() if list(Path(folder).glob("*.parquet")) else 0


if len(sys.argv) == 2:
    job(sys.argv[1])
    sys.exit()

with tempfile.TemporaryDirectory() as folder:
    for power_cut_at in (80, 160, 240, -1):
        environment = {**os.environ, "POWER_CUT_AT": str(power_cut_at)}
        ended = subprocess.run([sys.executable, __file__, folder], env=environment, check=False)
        how = "killed" if ended.returncode == -signal.SIGKILL else "finished"
        print(f"{how}: {rows_in(folder)} rows are there")
    found = sorted(row["id"] for row in skate.data.read_parquet(folder).take_all())
    print("every row once:", found == list(range(300)))
skate.shutdown()
