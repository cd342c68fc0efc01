"""The manifest in examples/cluster: its program runs on a cluster, with the command that it gives to Kubernetes."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from skate._version import ray_version

MANIFEST = Path(__file__).parents[3] / "examples" / "cluster" / "rayjob.yaml"


@pytest.fixture(scope="module")
def documents() -> dict[str, Any]:
    return {document["kind"]: document for document in yaml.safe_load_all(MANIFEST.read_text())}


def test_the_cluster_has_the_ray_whose_api_skate_follows(documents: dict[str, Any]) -> None:
    job = documents["RayJob"]
    assert job["apiVersion"] == "ray.io/v1"
    assert job["spec"]["rayClusterSpec"]["rayVersion"] == ray_version
    assert f"rayproject/ray:{ray_version}" in MANIFEST.read_text()


def test_the_program_is_where_the_entrypoint_looks(documents: dict[str, Any]) -> None:
    spec = documents["RayJob"]["spec"]
    pod = spec["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    (mount,) = pod["containers"][0]["volumeMounts"]
    (volume,) = pod["volumes"]
    assert volume["name"] == mount["name"]
    assert volume["configMap"]["name"] == documents["ConfigMap"]["metadata"]["name"]
    script = Path(shlex.split(spec["entrypoint"])[-1])
    assert str(script.parent) == mount["mountPath"]
    assert script.name in documents["ConfigMap"]["data"]


def test_the_entrypoint_runs_the_program_on_a_cluster(
    documents: dict[str, Any], one_node: Any, tmp_path: Path
) -> None:
    program, *arguments = shlex.split(documents["RayJob"]["spec"]["entrypoint"])
    script = tmp_path / Path(arguments.pop()).name
    script.write_text(documents["ConfigMap"]["data"][script.name])
    done = subprocess.run(
        [str(Path(sys.executable).with_name(program)), *arguments, str(script)],
        env={**os.environ, "RAY_ADDRESS": one_node.address},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.stdout.strip() == str(sum(i * i for i in range(1000))), done.stderr
