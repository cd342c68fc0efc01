"""Names of the metrics that Tune adds to results, and of files in the folder of a trial."""

from __future__ import annotations

from typing import Final

from skate.air.constants import EXPR_ERROR_FILE as EXPR_ERROR_FILE
from skate.air.constants import EXPR_ERROR_PICKLE_FILE as EXPR_ERROR_PICKLE_FILE
from skate.air.constants import EXPR_PROGRESS_FILE as EXPR_PROGRESS_FILE
from skate.air.constants import EXPR_RESULT_FILE as EXPR_RESULT_FILE
from skate.air.constants import TIME_THIS_ITER_S as TIME_THIS_ITER_S
from skate.air.constants import TIMESTAMP as TIMESTAMP
from skate.air.constants import TRAINING_ITERATION as TRAINING_ITERATION

TIME_TOTAL_S: Final = "time_total_s"
TIMESTEPS_TOTAL: Final = "timesteps_total"
TIMESTEPS_THIS_ITER: Final = "timesteps_this_iter"
EPISODES_TOTAL: Final = "episodes_total"
EPISODES_THIS_ITER: Final = "episodes_this_iter"
EPISODE_REWARD_MEAN: Final = "episode_reward_mean"
MEAN_ACCURACY: Final = "mean_accuracy"
MEAN_LOSS: Final = "mean_loss"
DEFAULT_METRIC: Final = "_metric"  # of a function that returns a number

DONE: Final = "done"
SHOULD_CHECKPOINT: Final = "should_checkpoint"
TRIAL_ID: Final = "trial_id"
EXPERIMENT_TAG: Final = "experiment_tag"
HOSTNAME: Final = "hostname"
NODE_IP: Final = "node_ip"
PID: Final = "pid"
CONFIG_PREFIX: Final = "config"
RESULT_DUPLICATE: Final = "__duplicate__"

EXPR_PARAM_FILE: Final = "params.json"
EXPR_PARAM_PICKLE_FILE: Final = "params.pkl"
DEFAULT_EXPERIMENT_NAME: Final = "default"

DEFAULT_RESULT_KEYS: Final = (TRAINING_ITERATION, TIME_TOTAL_S, MEAN_ACCURACY, MEAN_LOSS)
AUTO_RESULT_KEYS: Final = (
    TRAINING_ITERATION,
    TIME_TOTAL_S,
    EPISODES_TOTAL,
    TIMESTEPS_TOTAL,
    NODE_IP,
    HOSTNAME,
    PID,
    TIME_THIS_ITER_S,
    TIMESTAMP,
    "date",
    "time_since_restore",
    "timesteps_since_restore",
    "iterations_since_restore",
    "config",
    "checkpoint_dir_name",
)
