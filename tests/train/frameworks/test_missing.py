"""Frameworks are optional: nothing imports one that is not used, and what is missing is named."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.frameworks

FRAMEWORKS = (
    "torch",
    "transformers",
    "lightning",
    "pytorch_lightning",
    "xgboost",
    "lightgbm",
    "tensorflow",
    "keras",
    "jax",
)

# What to import or make, and the package that its error has to name.
NEEDS = {
    "import skate.train.xgboost": "xgboost",
    "import skate.train.lightgbm": "lightgbm",
    "import skate.train.lightning": "lightning",
    "import skate.train.huggingface.transformers": "transformers",
    "import skate.train.tensorflow.keras": "tensorflow",
    "from skate.train.tensorflow import TensorflowTrainer; TensorflowTrainer(print)": "tensorflow",
    "from skate.train.v2.jax import JaxTrainer; JaxTrainer(print)": "jax",
}

PROGRAM = """
import json, sys

class Without:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in {missing!r} else self.finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self.finder, name)

sys.meta_path[:] = map(Without, sys.meta_path)
said = {{}}
for statement in {statements!r}:
    try:
        exec(statement, {{}})
    except ImportError as error:
        said[statement] = str(error)
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def said() -> dict[str, str]:
    """What each of the statements says where no framework but torch is installed."""
    missing = [name for name in FRAMEWORKS if name != "torch"]
    program = PROGRAM.format(missing=missing, statements=list(NEEDS))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("statement", NEEDS)
def test_a_framework_that_is_missing_is_named(statement: str, said: dict[str, str]) -> None:
    assert f"pip install {NEEDS[statement]}" in said[statement]


def test_train_imports_no_framework() -> None:
    program = (
        "import sys, skate.train, skate.train.tensorflow, skate.train.v2.jax; print('\\n'.join(sys.modules))"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert set(FRAMEWORKS) & set(loaded.stdout.split()) == set()
