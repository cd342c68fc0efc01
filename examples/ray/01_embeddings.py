"""Embed texts on several GPUs at once, and find the text that answers a question.

Shows tasks that take a GPU each, packages imported where they are used, and many results taken in one call. The
session is told that it has two GPUs, so that the program also runs where there are none.

Prints:

    8 recipes, 256 numbers each, from 4 tasks with 1 GPU each
    something cold with tomatoes -> cold soup of raw tomatoes and cucumber
    bread without wheat flour -> flat bread from maize flour, baked on a stone
"""

# needs: core

import ray

RECIPES = [
    "cold soup of raw tomatoes and cucumber",
    "flat bread from maize flour, baked on a stone",
    "lentils stewed with carrots and bay leaves",
    "rice pudding with cinnamon and lemon peel",
    "pickled herring on buttered rye",
    "dumplings filled with plums",
    "noodles in a broth of dried mushrooms",
    "roasted chestnuts with sea salt",
]

ray.init(num_gpus=2)


@ray.remote(num_gpus=1)
def embed(texts, size=256):
    """Return one vector for each text, and the GPUs this task was given."""
    import zlib

    import torch

    torch.manual_seed(0)  # Every task builds the same model.
    words = torch.nn.EmbeddingBag(4096, size, mode="sum")
    ids = [[zlib.crc32(word.encode()) % 4096 for word in text.replace(",", "").split()] for text in texts]
    with torch.no_grad():
        vectors = torch.stack([words(torch.tensor([of_text]))[0] for of_text in ids])
        return torch.nn.functional.normalize(vectors).numpy(), ray.get_gpu_ids()


batches = [RECIPES[start::4] for start in range(4)]
futures = [embed.remote(batch) for batch in batches]
results = ray.get(futures)

recipes = sum(len(vectors) for vectors, _ in results)
(width,) = {vectors.shape[1] for vectors, _ in results}
(gpus,) = {len(ids) for _, ids in results}
print(f"{recipes} recipes, {width} numbers each, from {len(futures)} tasks with {gpus} GPU each")

for question in ("something cold with tomatoes", "bread without wheat flour"):
    (asked,), _ = ray.get(embed.remote([question]))
    near = {
        text: float(vector @ asked)
        for batch, (vectors, _) in zip(batches, results, strict=True)
        for text, vector in zip(batch, vectors, strict=True)
    }
    print(question, "->", max(near, key=near.get))
