"""Lose workers in the middle of the work, and finish it all the same.

Shows tasks that are run again when their process dies or when they raise a chosen error, an actor that comes back
and picks up where its file says it was, and what callers see once its restarts are used up.

Prints:

    a task whose process died: done at try 2
    a task that raised ConnectionError: done at try 3
    an error that is not to be retried: ValueError, at try 1
    deposits: 10, 30, 60 (came back from a crash: True)
    one crash too many: ActorDiedError
"""

# needs: core
# engines: local, for here processes die, and inline has but one

import json
import os
import tempfile
from pathlib import Path

import ray


@ray.remote
class Tally:
    """Counts tries; it outlives the tasks that crash."""

    def __init__(self):
        self.tries = {}

    def next(self, name):
        self.tries[name] = self.tries.get(name, 0) + 1
        return self.tries[name]


@ray.remote(max_retries=3)
def crash_once(tally):
    attempt = ray.get(tally.next.remote("crash"))
    if attempt == 1:
        os._exit(1)
    return attempt


@ray.remote(max_retries=3, retry_exceptions=[ConnectionError])
def fetch(tally):
    attempt = ray.get(tally.next.remote("fetch"))
    if attempt < 3:
        raise ConnectionError("the line is busy")
    return attempt


@ray.remote(max_retries=3, retry_exceptions=[ConnectionError])
def parse(tally):
    ray.get(tally.next.remote("parse"))
    raise ValueError("not a number")


@ray.remote(max_restarts=1, max_task_retries=1)
class Account:
    """A balance that is written down before anything else can happen to it."""

    def __init__(self, path):
        self.path = path
        self.balance = json.loads(path.read_text()) if path.exists() else 0

    def deposit(self, amount, tally):
        if ray.get(tally.next.remote(f"deposit {amount}")) == 1 and amount == 30:
            os._exit(1)
        self.balance += amount
        self.path.write_text(json.dumps(self.balance))
        return self.balance

    def came_back(self):
        return ray.get_runtime_context().was_current_actor_reconstructed

    def crash(self):
        os._exit(1)


tally = Tally.remote()
print("a task whose process died: done at try", ray.get(crash_once.remote(tally)))
print("a task that raised ConnectionError: done at try", ray.get(fetch.remote(tally)))
try:
    ray.get(parse.remote(tally))
except ValueError as error:
    kind = type(error.cause).__name__
    print(f"an error that is not to be retried: {kind}, at try {ray.get(tally.next.remote('parse')) - 1}")

with tempfile.TemporaryDirectory() as folder:
    account = Account.remote(Path(folder) / "balance.json")
    balances = ray.get([account.deposit.remote(amount, tally) for amount in (10, 20, 30)])
    print("deposits:", ", ".join(map(str, balances)), end=" ")
    print(f"(came back from a crash: {ray.get(account.came_back.remote())})")
    try:
        ray.get(account.crash.options(max_task_retries=0).remote())
    except ray.exceptions.RayActorError as error:
        print("one crash too many:", type(error).__name__)
