"""Count words with a program that knows only Ray: `skate run examples/05_ray_program.py`.

Shows that `import ray` can be Skate: tasks, an actor, a queue and an error, under Ray's names and unchanged.
"""

from collections import Counter

import ray
from ray.exceptions import RayTaskError
from ray.util.queue import Queue

PAGES = {
    "spring": "the ice is thin and the lake is loud",
    "summer": "no ice and no skate in sight",
    "autumn": None,
    "winter": "the ice is thick and the skate is sharp",
}


@ray.remote
def count(page: str) -> Counter[str]:
    text = PAGES[page]
    if text is None:
        raise LookupError(f"the page {page} is empty")
    return Counter(text.split())


@ray.remote
class Totals:
    """Adds up what is counted, and says how far it is."""

    def __init__(self, progress: Queue) -> None:
        self.words: Counter[str] = Counter()
        self.progress = progress

    def add(self, words: Counter[str]) -> None:
        self.words += words
        self.progress.put(self.words.total())

    def most_common(self, number: int) -> list[tuple[str, int]]:
        return sorted(self.words.items(), key=lambda item: (-item[1], item[0]))[:number]


def main() -> None:
    ray.init(num_cpus=2)
    progress = Queue()
    totals = Totals.remote(progress)
    added = {page: totals.add.remote(count.remote(page)) for page in PAGES}
    for page, done in added.items():
        try:
            ray.get(done)
            print(f"{page}: {progress.get()} words so far")
        except RayTaskError as error:
            print(f"{page}: {error.cause}")
    print("most common:", ray.get(totals.most_common.remote(3)))


if __name__ == "__main__":
    main()
