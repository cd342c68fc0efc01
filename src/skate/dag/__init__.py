"""Graphs of tasks and actor calls, built with `bind` and run with `execute`, or compiled for repeated runs."""

from __future__ import annotations

from skate.dag._visualization import plot
from skate.dag.class_node import ClassMethodNode, ClassNode, bind_actor_method
from skate.dag.compiled_dag_node import CompiledDAG
from skate.dag.compiled_dag_ref import CompiledDAGFuture, CompiledDAGRef
from skate.dag.constants import (
    BIND_INDEX_KEY,
    DAGNODE_TYPE_KEY,
    IS_CLASS_METHOD_OUTPUT_KEY,
    PARENT_CLASS_NODE_KEY,
    PREV_CLASS_METHOD_CALL_KEY,
)
from skate.dag.context import DAGContext
from skate.dag.dag_node import DAGNode
from skate.dag.function_node import FunctionNode
from skate.dag.input_node import DAGInputData, InputAttributeNode, InputNode
from skate.dag.output_node import MultiOutputNode

__all__ = [
    "BIND_INDEX_KEY",
    "DAGNODE_TYPE_KEY",
    "IS_CLASS_METHOD_OUTPUT_KEY",
    "PARENT_CLASS_NODE_KEY",
    "PREV_CLASS_METHOD_CALL_KEY",
    "ClassMethodNode",
    "ClassNode",
    "CompiledDAG",
    "CompiledDAGFuture",
    "CompiledDAGRef",
    "DAGContext",
    "DAGInputData",
    "DAGNode",
    "FunctionNode",
    "InputAttributeNode",
    "InputNode",
    "MultiOutputNode",
    "bind_actor_method",
    "plot",
]
