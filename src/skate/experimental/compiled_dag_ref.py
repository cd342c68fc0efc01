"""References to results of compiled graphs."""

from __future__ import annotations

from skate.dag.compiled_dag_ref import CompiledDAGFuture, CompiledDAGRef

__all__ = ["CompiledDAGFuture", "CompiledDAGRef"]
