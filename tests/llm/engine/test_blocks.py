"""The pool of blocks."""

from __future__ import annotations

from skate.llm._engine.blocks import BlockPool, block_hash, root_hash


def hashes(*blocks: tuple[int, ...], root: bytes = b"") -> list[bytes]:
    chain: list[bytes] = []
    for tokens in blocks:
        chain.append(block_hash(chain[-1] if chain else root, tokens))
    return chain


def test_blocks_are_handed_out_until_all_are_held() -> None:
    pool = BlockPool(2, 4)
    assert {pool.allocate(), pool.allocate()} == {0, 1}
    assert pool.allocate() is None
    pool.release([1])
    assert pool.allocate() == 1


def test_the_block_behind_another_is_preferred() -> None:
    pool = BlockPool(8, 4)
    assert pool.allocate() == 0
    assert pool.allocate() == 1
    assert pool.allocate(after=4) == 5
    assert pool.allocate(after=0) == 2  # block 1 is held


def test_a_released_block_is_found_by_its_hash_until_it_is_handed_out_again() -> None:
    pool = BlockPool(2, 4)
    block = pool.allocate()
    assert block is not None
    (content,) = hashes((1, 2, 3, 4))
    pool.register(block, content)
    pool.release([block])
    assert pool.find([content]) == [block]
    pool.hold([block])
    assert pool.holders(block) == 1
    pool.release([block])
    assert {pool.allocate(), pool.allocate()} == {0, 1}
    assert pool.find([content]) == []


def test_blocks_without_content_are_reused_before_cached_ones() -> None:
    pool = BlockPool(3, 4)
    cached, plain = pool.allocate(), pool.allocate()
    assert cached is not None
    assert plain is not None
    pool.register(cached, b"content")
    pool.release([cached])
    pool.release([plain])
    assert pool.allocate() == plain


def test_the_end_of_a_prefix_is_reused_before_its_start() -> None:
    pool = BlockPool(2, 4)
    first, second = pool.allocate(), pool.allocate()
    assert first is not None
    assert second is not None
    chain = hashes((1, 2, 3, 4), (5, 6, 7, 8))
    pool.register(first, chain[0])
    pool.register(second, chain[1])
    pool.release([first, second])
    assert pool.allocate() == second
    assert pool.find(chain) == [first]


def test_a_hash_depends_on_every_token_before_it() -> None:
    assert hashes((1, 2), (3, 4))[1] != hashes((1, 9), (3, 4))[1]
    assert hashes((1, 2), (3, 4))[1] == hashes((1, 2), (3, 4))[1]


def test_prompts_with_different_salts_share_no_hash() -> None:
    assert hashes((1, 2), root=root_hash(0, None, "a")) != hashes((1, 2), root=root_hash(0, None, "b"))


def test_forgotten_prefixes_are_not_found() -> None:
    pool = BlockPool(2, 4)
    block = pool.allocate()
    assert block is not None
    pool.register(block, b"content")
    pool.forget_all()
    assert pool.find([b"content"]) == []
    pool.release([block])
    assert pool.free_count == 2
