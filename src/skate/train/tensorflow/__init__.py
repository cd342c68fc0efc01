"""Training with TensorFlow."""

from skate.train.tensorflow.config import TensorflowConfig
from skate.train.tensorflow.tensorflow_checkpoint import TensorflowCheckpoint
from skate.train.tensorflow.tensorflow_trainer import TensorflowTrainer
from skate.train.tensorflow.train_loop_utils import prepare_dataset_shard

__all__ = ["TensorflowCheckpoint", "TensorflowConfig", "TensorflowTrainer", "prepare_dataset_shard"]
