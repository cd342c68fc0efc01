"""Work on the first results of a task while it still makes the next.

Shows a task that yields, items that are handed on as references without being fetched, a producer that waits for a
slow reader, an actor method that streams, and a stream that fails half way.

Prints:

    temperatures: 12 15 19 23 21 16
    in Fahrenheit: 53.6 59.0 66.2 73.4 69.8 60.8
    first reading above 20: 23
    words of an actor: the quick brown fox
    from a loose sensor: 1 2, then OSError('it fell off')
"""

# needs: core

import asyncio

import ray

KELVIN = [285, 288, 292, 296, 294, 289]


@ray.remote
def read_sensor():
    for kelvin in KELVIN:
        yield kelvin - 273


@ray.remote
def to_fahrenheit(celsius):
    return celsius * 9 / 5 + 32


@ray.remote(_generator_backpressure_num_objects=2)
def endless():
    """Yield readings for ever, but never more than two ahead of the reader."""
    while True:
        for kelvin in KELVIN:
            yield kelvin - 273


@ray.remote
class Speaker:
    """Says a sentence word by word."""

    async def speak(self, sentence):
        for word in sentence.split():
            await asyncio.sleep(0)  # Others may speak in between.
            yield word


@ray.remote
def loose_sensor():
    yield 1
    yield 2
    raise OSError("it fell off")


print("temperatures:", *(ray.get(reading) for reading in read_sensor.remote()))
print("in Fahrenheit:", *ray.get([to_fahrenheit.remote(reading) for reading in read_sensor.remote()]))

stream = endless.remote()
warm = next(value for value in (ray.get(reading) for reading in stream) if value > 20)
print("first reading above 20:", warm)
ray.cancel(stream)

speaker = Speaker.remote()
words = speaker.speak.options(num_returns="streaming").remote("the quick brown fox")
print("words of an actor:", *(ray.get(word) for word in words))

readings = loose_sensor.remote()
print("from a loose sensor:", ray.get(next(readings)), ray.get(next(readings)), end=", ")
try:
    ray.get(next(readings))
except OSError as error:
    print("then", repr(error.cause))
