"""Answer questions over HTTP with two models that call each other.

Shows deployments with several replicas, a pipeline that is put together with `bind` and calls its parts through
handles, an answer over HTTP and one through the handle, and requests that are answered side by side.

Prints:

    over HTTP: {'answer': 'Bees dance, said the keeper'}
    through the handle: Rivers bend, said the keeper
    eight questions, two replicas, all answered: True
"""

# needs: core, serve
# engines: local, for a server answers while its clients go on

import json
import os
import urllib.parse
import urllib.request

import ray
from ray import serve
from ray.serve.handle import DeploymentHandle

FACTS = {"bees": "Bees dance", "rivers": "Rivers bend"}


@serve.deployment(num_replicas=2, ray_actor_options={"num_cpus": 0.2})
class Writer:
    """Completes a prompt."""

    def __init__(self, signature: str):
        self.signature = signature

    async def generate(self, prompt: str) -> tuple[str, int]:
        fact = prompt.partition("Fact: ")[2].partition("\n")[0]
        return f"{fact}, said {self.signature}", os.getpid()


@serve.deployment(num_replicas=1, ray_actor_options={"num_cpus": 0.2})
class Pipeline:
    """Looks a fact up, and lets the writer make a sentence of it."""

    def __init__(self, writer: DeploymentHandle):
        self.writer = writer

    async def __call__(self, request):
        return {"answer": await self.answer(request.query_params["q"])}

    async def answer(self, question: str) -> str:
        prompt = f"Fact: {FACTS[question]}\nQuestion: {question}\nAnswer:"
        sentence, _ = await self.writer.generate.remote(prompt)
        return sentence


writer = Writer.bind(signature="the keeper")
serve.start(http_options={"host": "127.0.0.1", "port": 8123})
handle = serve.run(Pipeline.bind(writer=writer))

query = urllib.parse.urlencode({"q": "bees"})
with urllib.request.urlopen(f"http://127.0.0.1:8123/?{query}") as response:
    print("over HTTP:", json.load(response))
print("through the handle:", handle.answer.remote("rivers").result())

answers = [handle.answer.remote(question) for question in list(FACTS) * 4]
print(
    "eight questions, two replicas, all answered:", len({answer.result() for answer in answers}) == len(FACTS)
)
serve.shutdown()
ray.shutdown()
