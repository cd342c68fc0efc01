"""Fine-tune a small language model on a few chats, and ask the model that it wrote.

The program makes its own base model, a tiny Llama with random weights, so that it needs no download and takes a few
seconds. It trains on rows of which one is broken, and loads the result with transformers. Give `--model` the folder of
a real model, and `--adapter lora` to train an adapter instead of all weights.

    python examples/11_finetune.py
    python examples/11_finetune.py --workers 2
    python examples/11_finetune.py --model path/to/SmolLM2-135M-Instruct --adapter lora --epochs 3
"""

import argparse
import json
import tempfile
from pathlib import Path

import skate.llm
from skate.llm import FinetuneConfig

CAPITALS = {"France": "Paris", "Italy": "Rome", "Norway": "Oslo", "Egypt": "Cairo", "Peru": "Lima"}
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def question(country: str) -> list[dict]:
    return [{"role": "user", "content": f"The capital of {country}?"}]


def make_rows(path: Path) -> str:
    """Write a chat for each country, and a line that is not JSON."""
    chats = [
        {"messages": [*question(country), {"role": "assistant", "content": f"{city} is the capital."}]}
        for country, city in CAPITALS.items()
    ]
    path.write_text("".join(json.dumps(chat) + "\n" for chat in chats) + "{not JSON\n")
    return str(path)


def make_model(folder: Path) -> Path:
    """Write a Llama of two layers with random weights, and a tokenizer that is trained on the rows."""
    import tokenizers
    import torch
    import transformers
    from tokenizers import decoders, models, pre_tokenizers, trainers

    plain = tokenizers.Tokenizer(models.BPE())
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = decoders.ByteLevel()
    texts = [
        f"user\nassistant\nThe capital of {country}? {city} is the capital."
        for country, city in CAPITALS.items()
    ]
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    plain.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=400, special_tokens=special, initial_alphabet=alphabet, show_progress=False
        ),
    )
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=plain, eos_token="<|endoftext|>")
    tokenizer.add_special_tokens({"additional_special_tokens": special[1:]})
    tokenizer.chat_template = TEMPLATE
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=256,
        )
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def ask(folder: Path, country: str) -> str:
    """Return the answer of a model, without its stop token."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    prompt = tokenizer.apply_chat_template(question(country), add_generation_prompt=True, return_tensors="pt")
    tokens = model.generate(**prompt, max_new_tokens=20, do_sample=False, pad_token_id=0)
    return tokenizer.decode(tokens[0, prompt["input_ids"].shape[1] :], skip_special_tokens=True)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--model", help="the folder of a base model")
    options.add_argument("--adapter", choices=("lora", "qlora"))
    options.add_argument("--epochs", type=int, default=40)
    options.add_argument("--workers", type=int, default=0, help="0 trains in this process")
    options = options.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        base = Path(options.model) if options.model else make_model(Path(folder, "base"))
        config = FinetuneConfig(
            base_model=str(base),
            datasets=[{"path": make_rows(Path(folder, "rows.jsonl")), "type": "chat"}],
            output_dir=str(Path(folder, "out")),
            adapter=options.adapter,
            sequence_len=128,
            num_epochs=options.epochs,
            learning_rate=None if options.model else 5e-3,
            num_workers=options.workers,
        )
        print(f"before: {ask(base, 'Norway')!r}")
        result = skate.llm.finetune(config)
        print(f"rows left out: {dict(result.dead_letters)}")
        print(f"loss: {result.history[0]['loss']:.2f} at first, {result.history[-1]['loss']:.2f} at last")
        for country in CAPITALS:
            print(f"{country}: {ask(result.path, country)}")


if __name__ == "__main__":
    main()
