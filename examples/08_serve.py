"""Serve two deployments, replace them while clients keep asking, and kill a replica: no request fails.

`Review` answers HTTP and asks `Scorer`, which stands for a model. The second version takes over when it is up.
"""

import json
import os
import signal
import threading
import time
import urllib.request

import skate
from skate import serve

LIGHT = {"num_cpus": 0.1}


@serve.deployment(num_replicas=2, ray_actor_options=LIGHT)
class Scorer:
    """Stands for a model."""

    def __init__(self, words):
        self.words = words

    def __call__(self, text):
        return sum(text.count(word) for word in self.words)

    def pid(self):
        return os.getpid()


@serve.deployment(num_replicas=2, ray_actor_options=LIGHT)
class Review:
    """Answers HTTP with what the model says."""

    def __init__(self, version, scorer):
        self.version = version
        self.scorer = scorer

    async def __call__(self, request):
        text = request.query_params["text"]
        return {"version": self.version, "score": await self.scorer.remote(text)}


begun = time.perf_counter()
skate.init(num_cpus=4)
serve.start(http_options={"port": 0})  # any port that is free
serve.run(Review.bind(1, Scorer.bind(["good", "great"])))
host, port = serve.address()
print(f"up after {time.perf_counter() - begun:.1f} s")

answers, failures, stop = {1: 0, 2: 0}, [], threading.Event()


def ask():
    """Ask again and again, until told to stop."""
    url = f"http://{host}:{port}/?text=good%20and%20great"
    while not stop.is_set():
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                answers[json.load(answer)["version"]] += 1
        except OSError as error:
            failures.append(error)


clients = [threading.Thread(target=ask) for _ in range(4)]
for client in clients:
    client.start()

while answers[1] < 50:
    time.sleep(0.01)
serve.run(Review.bind(2, Scorer.bind(["good", "great"])))
print(f"updated after {answers[1]} answers of version 1")
replica = serve.get_deployment_handle("Scorer", "default").pid.remote().result()
if replica != os.getpid():  # on the inline engine, that would be us
    os.kill(replica, signal.SIGKILL)
while answers[2] < 200:
    time.sleep(0.01)

stop.set()
for client in clients:
    client.join()
print(f"{answers[2]} answers of version 2, {len(failures)} failures")
serve.shutdown()
skate.shutdown()
