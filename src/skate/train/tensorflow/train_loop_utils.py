"""Utilities for training functions with TensorFlow."""

from __future__ import annotations

from typing import Any

from skate.air import _optional

__all__ = ["prepare_dataset_shard"]


def prepare_dataset_shard(tf_dataset_shard: Any) -> Any:
    """Return a `tf.data.Dataset` that TensorFlow does not shard again, since it contains only this worker's rows.

    Args:
        tf_dataset_shard: The dataset, as `get_dataset_shard().to_tf()` returns it.
    """
    tf = _optional.load("tensorflow", "prepare_dataset_shard")
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return tf_dataset_shard.with_options(options)
