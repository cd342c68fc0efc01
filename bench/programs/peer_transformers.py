"""transformers' `generate`: the same prompts as one padded batch."""

from __future__ import annotations

import time


def measure() -> None:
    import llm_model
    import meter
    import torch
    from transformers import AutoModelForCausalLM

    job = meter.Job()
    torch.set_num_threads(job.cpus)

    def llm_16() -> float:
        with llm_model.write() as folder:
            model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        tokens = torch.tensor(llm_model.prompts())

        def generate(outputs: int) -> None:
            model.generate(
                tokens,
                attention_mask=torch.ones_like(tokens),
                min_new_tokens=outputs,
                max_new_tokens=outputs,
                do_sample=False,
                pad_token_id=0,
            )

        generate(2)
        start = time.perf_counter()
        generate(llm_model.OUTPUTS)
        return llm_model.STREAMS * llm_model.OUTPUTS / (time.perf_counter() - start)

    job.run(llm_16)


if __name__ == "__main__":
    measure()
