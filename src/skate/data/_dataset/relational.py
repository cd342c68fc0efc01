"""Methods that sort, group, shuffle and repartition rows, or combine datasets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from skate.data._arguments import NON_NEGATIVE, POSITIVE, SHARE, checked, message
from skate.data._compute import compute_of
from skate.data._dataset.base import PlanHolder
from skate.data._plan import nodes
from skate.data._plan.nodes import MixStoppingCondition
from skate.data._seeds import seed_of
from skate.data.expressions import random

if TYPE_CHECKING:
    from skate.data.dataset import Dataset
    from skate.data.grouped_data import GroupedData

_JOINS = (
    "inner",
    "left_outer",
    "right_outer",
    "full_outer",
    "left_semi",
    "right_semi",
    "left_anti",
    "right_anti",
)


class RelationalMethods(PlanHolder):
    """Methods of `Dataset` that sort, group and combine."""

    @checked(limit=NON_NEGATIVE)
    def limit(self, limit: int) -> Dataset:
        """Keep the first rows; later rows are not read.

        >>> import skate
        >>> skate.data.range(1000).limit(2).take_all()
        [{'id': 0}, {'id': 1}]
        """
        return self._with_node(nodes.Limit(self._node, limit))

    @checked()
    def sort(
        self,
        key: str | Sequence[str] | None = None,
        descending: bool | Sequence[bool] = False,
        boundaries: list[Any] | None = None,
    ) -> Dataset:
        """Sort rows by one or more columns; rows with equal keys keep their order.

        Args:
            key: The column or columns, the most significant first.
            descending: Sort in descending order: for all columns, or for each.
            boundaries: Values of the column at which blocks begin.

        >>> import skate
        >>> skate.data.range(3).sort("id", descending=True).take_all()
        [{'id': 2}, {'id': 1}, {'id': 0}]
        """
        if key is None:
            raise ValueError("sort() needs the column to sort by, and its key is None")
        keys = _names("sort", key)
        falling = [descending] * len(keys) if isinstance(descending, bool) else list(descending)
        if len(falling) != len(keys):
            raise ValueError(
                f"Length of `descending` must be 1 or match the number of keys: there are {len(keys)} keys and "
                f"{len(falling)} values"
            )
        self._check_keys("sort", keys)
        bounds = None if boundaries is None else tuple(boundaries)
        return self._with_node(nodes.Sort(self._node, keys, tuple(map(bool, falling)), bounds))

    def _check_keys(self, call: str, keys: Sequence[str]) -> None:
        """Raise ValueError for missing columns, if the schema is known before the plan runs."""
        schema = self.schema(fetch_if_missing=False)  # type: ignore[attr-defined]
        missing = [] if schema is None else [name for name in keys if name not in schema.names]
        if missing:
            raise ValueError(
                f"cannot {call} by {missing[0]!r}: there's no such column in the dataset, which has {schema.names}"
            )

    @checked(num_partitions=POSITIVE)
    def groupby(self, key: str | list[str] | None, num_partitions: int | None = None) -> GroupedData:
        """Group rows by the values of one or more columns; None puts all rows into one group.

        >>> import skate
        >>> ds = skate.data.from_items([{"k": "a", "v": 1}, {"k": "b", "v": 2}, {"k": "a", "v": 3}])
        >>> ds.groupby("k").sum("v").take_all()
        [{'k': 'a', 'sum(v)': 4}, {'k': 'b', 'sum(v)': 2}]
        """
        from skate.data.grouped_data import GroupedData

        return GroupedData(self, key, num_partitions)

    @checked("join_type", num_partitions=POSITIVE, partition_size_hint=POSITIVE)
    def join(
        self,
        ds: Dataset,
        join_type: str,
        num_partitions: int | None = None,
        on: str | Sequence[str] = ("id",),
        right_on: str | Sequence[str] | None = None,
        left_suffix: str | None = None,
        right_suffix: str | None = None,
        *,
        partition_size_hint: int | None = None,
        aggregator_ray_remote_args: dict[str, Any] | None = None,
        validate_schemas: bool = False,
    ) -> Dataset:
        """Join the rows of two datasets that have equal values in some columns.

        Args:
            ds: The right side.
            join_type: "inner", or the side and kind: "left_outer", "left_semi", "left_anti", the same with "right_", or
                "full_outer".
            num_partitions: Accepted without effect: the number of partitions depends on the size.
            on: The key columns of the left side.
            right_on: The key columns of the right side, if they have other names.
            left_suffix: Suffix for columns of the left side that the right side also has.
            right_suffix: Suffix for columns of the right side that the left side also has.
            partition_size_hint: Accepted without effect.
            aggregator_ray_remote_args: Accepted without effect.
            validate_schemas: Check the key columns before the plan runs.

        >>> import skate
        >>> people = skate.data.from_items([{"id": 1, "name": "Ann"}, {"id": 2, "name": "Bo"}])
        >>> ages = skate.data.from_items([{"id": 2, "age": 7}])
        >>> people.join(ages, "inner", on="id").take_all()
        [{'id': 2, 'name': 'Bo', 'age': 7}]
        """
        how = str(getattr(join_type, "value", join_type))
        if how not in _JOINS:
            raise ValueError(
                f"Invalid join type: {join_type!r}. Supported join types are: {', '.join(_JOINS)}."
            )
        left = _names("join", on)
        right = left if right_on is None else _names("join", right_on)
        if len(left) != len(right):
            raise ValueError(
                f"A join compares as many columns of one side as of the other, but on={left} and right_on={right}"
            )
        if validate_schemas:
            _check_join(self, ds, left, right)
        suffixes = (left_suffix, right_suffix)
        return self._with_node(nodes.Join(self._node, ds._node, how, left, right, suffixes, num_partitions))

    @checked()
    def union(self, *other: Dataset) -> Dataset:
        """Concatenate datasets.

        >>> import skate
        >>> skate.data.range(2).union(skate.data.range(1)).take_all()
        [{'id': 0}, {'id': 1}, {'id': 0}]
        """
        return self._with_node(nodes.Union((self._node, *(each._node for each in other))))

    @checked()
    def mix(
        self,
        *other: Dataset,
        weights: list[float] | None = None,
        stopping_condition: MixStoppingCondition = MixStoppingCondition.STOP_ON_LONGEST_DROP,
    ) -> Dataset:
        """Take blocks of several datasets alternately, in given proportions of rows.

        Args:
            *other: The datasets to mix with this one.
            weights: The share of each dataset, this one first; equal by default.
            stopping_condition: End with the first dataset that has no more rows, or continue without it.

        >>> import skate
        >>> ones, zeros = (skate.data.from_items([number] * 4, override_num_blocks=4) for number in (1, 0))
        >>> [row["item"] for row in ones.mix(zeros, weights=[3, 1]).take(4)]
        [1, 0, 1, 1]
        """
        shares = tuple(weights) if weights is not None else (1.0,) * (1 + len(other))
        if len(shares) != 1 + len(other):
            words = f"a list of {1 + len(other)} numbers, one for each dataset"
            raise ValueError(message("weights", words, weights))
        if any(share <= 0 for share in shares):
            raise ValueError(message("weights", "a list of positive numbers", weights))
        parts = (self._node, *(each._node for each in other))
        return self._with_node(nodes.Mix(parts, shares, MixStoppingCondition(stopping_condition)))

    @checked()
    def zip(self, *other: Dataset) -> Dataset:
        """Combine the columns of datasets with the same number of rows; repeated column names get a number.

        >>> import skate
        >>> skate.data.range(2).zip(skate.data.range(2)).take_all()
        [{'id': 0, 'id_1': 0}, {'id': 1, 'id_1': 1}]
        """
        return self._with_node(nodes.Zip((self._node, *(each._node for each in other))))

    @checked()
    def random_shuffle(
        self, *, seed: Any = None, num_blocks: int | None = None, **ray_remote_args: Any
    ) -> Dataset:
        """Shuffle all rows.

        Args:
            seed: The seed of the order.
            num_blocks: No longer supported; use `repartition`.
            **ray_remote_args: Accepted without effect.
        """
        if num_blocks is not None:
            raise DeprecationWarning("`num_blocks` is no longer supported in random_shuffle: use repartition")
        compute_of(
            False, None, ray_remote_args.pop("concurrency", None), ray_remote_args
        )  # looks for unknown ones
        return self._with_node(nodes.Shuffle(self._node, seed_of(seed)))

    def randomize_block_order(self, *, seed: Any = None) -> Dataset:
        """Shuffle the order of blocks, but not the rows in them."""
        return self._with_node(nodes.ShuffleBlocks(self._node, seed_of(seed)))

    @checked(fraction=SHARE)
    def random_sample(self, fraction: float, *, seed: Any = None) -> Dataset:
        """Keep each row with a probability.

        Args:
            fraction: The probability, between 0 and 1.
            seed: The seed of the sample.

        >>> import skate
        >>> 400 < skate.data.range(1000).random_sample(0.5, seed=1).count() < 600
        True
        """
        config = seed_of(seed)
        drawn = random(seed=config.seed, reseed_after_execution=config.reseed_after_execution)
        return self._with_node(nodes.Filter(self._node, drawn < fraction))

    @checked(num_blocks=POSITIVE, target_num_rows_per_block=POSITIVE)
    def repartition(
        self,
        num_blocks: int | None = None,
        target_num_rows_per_block: int | None = None,
        *,
        strict: bool = False,
        shuffle: bool = False,
        keys: str | list[str] | None = None,
        sort: bool = False,
    ) -> Dataset:
        """Split the rows into another number of blocks, in order unless shuffled.

        Args:
            num_blocks: Number of blocks.
            target_num_rows_per_block: Number of rows per block, in place of `num_blocks`.
            strict: With `target_num_rows_per_block`: give each block but the last exactly this many rows. Otherwise
                larger blocks are split, without a copy, and smaller ones are kept.
            shuffle: Shuffle the rows.
            keys: Put rows with equal values in these columns into the same block.
            sort: With `keys`: sort each block by them.

        >>> import skate
        >>> skate.data.range(10).repartition(3).materialize().num_blocks()
        3
        """
        if num_blocks is None and target_num_rows_per_block is None:
            raise ValueError(
                "Either `num_blocks` or `target_num_rows_per_block` must be set; repartition() got neither."
            )
        if num_blocks is not None and target_num_rows_per_block is not None:
            raise ValueError(
                "Only one of `num_blocks` or `target_num_rows_per_block` must be set, but not both. repartition() got "
                f"{num_blocks} and {target_num_rows_per_block}."
            )
        if target_num_rows_per_block is not None:
            if shuffle:
                raise ValueError("`shuffle` must be False when `target_num_rows_per_block` is set.")
            if keys:
                raise ValueError("`keys` must be None when `target_num_rows_per_block` is set.")
            return self._with_node(nodes.Resize(self._node, target_num_rows_per_block, strict))
        assert num_blocks is not None
        names = (keys,) if isinstance(keys, str) else tuple(keys or ())
        self._check_keys("repartition", names)
        return self._with_node(nodes.Repartition(self._node, num_blocks, shuffle, names, sort))


def _names(call: str, names: str | Sequence[str]) -> tuple[str, ...]:
    given = (names,) if isinstance(names, str) else tuple(names)
    if not given:
        raise ValueError(f"{call} needs at least one key column: the list of keys is empty")
    wrong = [name for name in given if not isinstance(name, str)]
    if wrong:
        raise ValueError(f"{call} takes column names, not {type(wrong[0]).__name__}: {wrong[0]!r}")
    return given


def _check_join(
    left: PlanHolder, right: PlanHolder, left_keys: tuple[str, ...], right_keys: tuple[str, ...]
) -> None:
    from skate.data.dataset import Dataset

    assert isinstance(left, Dataset)
    assert isinstance(right, Dataset)
    for side, dataset, keys in (("left", left, left_keys), ("right", right, right_keys)):
        schema = dataset.schema()
        missing = [key for key in keys if schema is None or key not in schema.names]
        if missing:
            there = [] if schema is None else schema.names
            raise ValueError(f"the {side} side of the join has no columns {missing}; it has {there}")
