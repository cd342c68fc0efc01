"""Losses in chunks have the values and gradients of the plain ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from skate.llm._finetune.loss import LanguageModelLoss, chunked_cross_entropy, token_losses


def tensors(*, bias: bool) -> tuple[Any, Any, Any, Any]:
    torch.manual_seed(0)
    hidden = torch.randn(13, 8, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(21, 8, dtype=torch.float64, requires_grad=True)
    added = torch.randn(21, dtype=torch.float64, requires_grad=True) if bias else None
    return hidden, weight, added, torch.randint(21, (13,))


@pytest.mark.parametrize("size", [1, 5, 100])
@pytest.mark.parametrize("bias", [False, True])
def test_a_chunked_loss_has_the_gradients_of_the_whole(size: int, bias: bool) -> None:
    hidden, weight, added, targets = tensors(bias=bias)
    given = [each for each in (hidden, weight, added) if each is not None]
    whole = functional.cross_entropy(functional.linear(hidden, weight, added), targets, reduction="sum") * 0.3
    expected = torch.autograd.grad(whole, given)
    chunked = chunked_cross_entropy(hidden, weight, targets, bias=added, chunk_size=size) * 0.3
    assert chunked.item() == pytest.approx(whole.item(), rel=1e-6)
    for found, right in zip(torch.autograd.grad(chunked, given), expected, strict=True):
        torch.testing.assert_close(found, right, rtol=1e-5, atol=1e-6)


def test_losses_of_tokens_have_the_gradients_of_the_whole() -> None:
    hidden, weight, _, targets = tensors(bias=False)
    expected = functional.cross_entropy(hidden @ weight.T, targets, reduction="none")
    found = token_losses(hidden, lambda part: part @ weight.T, targets, 4)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6)
    slopes = [torch.autograd.grad(each.sum(), hidden)[0] for each in (expected, found)]
    torch.testing.assert_close(slopes[1], slopes[0], rtol=1e-5, atol=1e-6)


def test_a_batch_without_trained_tokens_has_a_loss_of_zero_and_gradients(base: Path) -> None:
    from skate.llm._finetune.base_model import load_base_model

    module = LanguageModelLoss(load_base_model(str(base)))
    ids = torch.tensor([[5, 6, 7]])
    loss = module(ids, torch.arange(3)[None], torch.full((1, 3), -100))
    loss.backward()
    assert loss.item() == 0
    assert all(each.grad is not None and not each.grad.any() for each in module.parameters())


def test_the_loss_is_that_of_transformers(base: Path) -> None:
    from skate.llm._finetune.base_model import load_base_model

    model = load_base_model(str(base))
    module = LanguageModelLoss(model, chunk_size=3)
    assert module.is_chunked
    assert module.is_linear
    ids = torch.randint(300, (2, 9), generator=torch.Generator().manual_seed(0))
    labels = functional.pad(ids[:, 1:], (0, 1), value=-100)
    expected = model(input_ids=ids, labels=ids).loss * 16
    found = module(ids, torch.arange(9).expand(2, 9), labels)
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)


def test_a_model_that_changes_its_logits_computes_them_itself(tmp_path: Path) -> None:
    from transformers import Gemma2Config, Gemma2ForCausalLM

    config = Gemma2Config(
        vocab_size=64,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        final_logit_softcapping=0.5,
    )
    torch.manual_seed(0)
    model = Gemma2ForCausalLM(config)
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(30)
    module = LanguageModelLoss(model)
    assert not module.is_chunked
    ids = torch.arange(8)[None]
    labels = functional.pad(ids[:, 1:], (0, 1), value=-100)
    expected = model(input_ids=ids, labels=ids).loss * 7
    found = module(ids, torch.arange(8)[None], labels)
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)
