"""Split many files into lines, sort and count them, and iterate over them, without having them in memory.

Reads the standard library of the Python that runs it, and one file that is no text: it is kept apart, with the error,
and everything else goes on.
"""

import sysconfig
import tempfile
import time
from collections import Counter
from pathlib import Path

import skate


def to_lines(row):
    """Split a file into its lines; one that is no text raises."""
    text = row["bytes"].decode("utf-8")
    return [{"file": Path(row["path"]).name, "line": line} for line in text.splitlines() if line.strip()]


def count_words(batch):
    """Count the words of many lines at once."""
    words = Counter(word for line in batch["line"] for word in line.split() if word.isidentifier())
    return {"word": list(words), "times": list(words.values())}


begun = time.perf_counter()
files = sorted(str(path) for path in Path(sysconfig.get_path("stdlib")).glob("*.py"))
broken = Path(tempfile.mkdtemp()) / "broken.py"
broken.write_bytes(b"\xff\xfe\xfd")
files.append(str(broken))
lines = skate.data.read_binary_files(files, include_paths=True).flat_map(to_lines, on_error="dead_letter")

longest = lines.map(lambda row: {**row, "length": len(row["line"])}).sort("length", descending=True).take(3)
print("the longest lines:")
for row in longest:
    print(f"  {row['length']:5} letters in {row['file']}")

words = lines.map_batches(count_words, batch_size=5000).groupby("word").sum("times")
print("the words used most:")
for row in words.sort("sum(times)", descending=True).take(5):
    print(f"  {row['word']:10} {row['sum(times)']}")

letters = sum(len(line) for batch in lines.iter_batches(batch_size=1000) for line in batch["line"])
print(f"{letters} letters in {len(files)} files")
for letter in lines.dead_letters().take_all():
    print(f"left out: {Path(letter['row']['path']).name}, {letter['error_type']}")
print(f"took {time.perf_counter() - begun:.1f} s")
skate.shutdown()
