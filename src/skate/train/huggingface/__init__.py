"""Training with the libraries of Hugging Face, in a training function of `TorchTrainer`."""

__all__: list[str] = []
