"""Choose the hyperparameters of a forecaster with neuralforecast, in trials of Ray Tune that ASHA stops early."""

import os

import numpy as np
import pandas as pd
from neuralforecast import NeuralForecast
from neuralforecast.auto import AutoMLP
from neuralforecast.common._base_auto import RayOptions
from neuralforecast.losses.pytorch import MAE
from ray import air, tune
from ray.tune.schedulers import ASHAScheduler
from reporting import report

days = np.arange(120)
series = pd.DataFrame(
    {
        "unique_id": "a",
        "ds": pd.date_range("2020-01-01", periods=len(days)),
        "y": np.sin(days / 6) + 0.01 * days,
    }
)
space = {
    "input_size": tune.choice([6, 12]),
    "learning_rate": tune.loguniform(1e-4, 1e-1),
    "random_seed": tune.randint(1, 10),
    "hidden_size": 8,
    "num_layers": 1,
    "max_steps": 12,
    "val_check_steps": 3,  # a report every three steps: four in all
    "batch_size": 8,
    "windows_batch_size": 32,
    "accelerator": "cpu",
    "logger": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}
model = AutoMLP(
    h=6,
    loss=MAE(),
    config=space,
    num_samples=4,
    ray_options=RayOptions(
        cpus=1,
        run_config=air.RunConfig(storage_path=os.getcwd(), verbose=0),
        scheduler=ASHAScheduler(max_t=4, grace_period=1, reduction_factor=2),
    ),
)
forecaster = NeuralForecast(models=[model], freq="D")
forecaster.fit(series, val_size=12)
tuned = forecaster.models[0]
results = list(tuned.results)
best = min(results, key=lambda result: result.metrics["loss"])
report(
    result={
        "learning rate": tuned.model.hparams.learning_rate,
        "reports": [result.metrics["training_iteration"] for result in results],
        "forecasts": len(forecaster.predict()),
    },
    expected=best.config["learning_rate"],
    pids=(result.metrics["pid"] for result in results),
)
