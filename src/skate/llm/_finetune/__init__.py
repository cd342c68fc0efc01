"""Fine-tuning of language models on `skate.train` and `skate.data`."""
