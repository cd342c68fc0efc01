"""Search the learning rate of a tiny BERT with `Trainer.hyperparameter_search`, in trials that ASHA stops early."""

import os

import torch
from ray import tune
from ray.tune.schedulers import ASHAScheduler
from reporting import report
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

RATES = [1e-5, 3e-3, 1e-2]


class Sentences(torch.utils.data.Dataset):
    """Random words; the label tells whether the first is one of the last ten of the vocabulary."""

    def __init__(self, count):
        generator = torch.Generator().manual_seed(count)
        self.words = torch.randint(0, 20, (count, 6), generator=generator)

    def __len__(self):
        return len(self.words)

    def __getitem__(self, index):
        words = self.words[index]
        return {"input_ids": words, "labels": (words[0] >= 10).long()}


def model_init(trial=None):
    torch.manual_seed(1)
    config = BertConfig(
        vocab_size=20,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=8,
    )
    return BertForSequenceClassification(config)


def compute_metrics(prediction):
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


trainer = Trainer(
    args=TrainingArguments(
        "checkpoints",
        num_train_epochs=3,
        per_device_train_batch_size=16,
        do_eval=True,
        eval_strategy="epoch",
        save_strategy="epoch",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    ),
    train_dataset=Sentences(96),
    eval_dataset=Sentences(64),
    model_init=model_init,
    compute_metrics=compute_metrics,
)
best = trainer.hyperparameter_search(
    backend="ray",
    hp_space=lambda trial: {"learning_rate": tune.grid_search(RATES)},
    n_trials=1,
    direction="maximize",
    compute_objective=lambda metrics: metrics["eval_accuracy"],
    scheduler=ASHAScheduler(metric="objective", mode="max", max_t=3, grace_period=1, reduction_factor=2),
    resources_per_trial={"cpu": 1},
    keep_checkpoints_num=1,
    checkpoint_score_attr="training_iteration",
    storage_path=os.getcwd(),
    verbose=0,
)
last = {trial.config["learning_rate"]: trial.last_result for trial in best.run_summary.trials}
report(
    result={
        "best": best.objective,
        "rate": best.hyperparameters["learning_rate"],
        "rates": sorted(last),
        "epochs": [last[rate]["training_iteration"] for rate in RATES],
        "checkpoints": sum(trial.checkpoint is not None for trial in best.run_summary.trials),
    },
    expected={"best": max(each["objective"] for each in last.values()), "rates": RATES},
    pids=(each["pid"] for each in last.values()),
)
