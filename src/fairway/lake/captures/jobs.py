"""Tasks on Spark that take items of a list and give a row for each: how captures are probed, written and analysed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASKS_PER_CORE = 4
"""More tasks than this share the work no better, and each takes a while to begin."""
ANSWER = pa.schema([pa.field("item", pa.int64()), pa.field("answer", pa.string())])


def each(spark: SparkSession, items: Sequence[Any], work: Callable[[Any], Any]) -> list[Any]:
    """Runs `work` on every item, one or a few in a task, and gives the answers in the items' order.

    `work` is a function of a module and its answer goes through JSON, so that this works on a cluster.
    """
    if not items:
        return []
    tasks = min(len(items), TASKS_PER_CORE * spark.sparkContext.defaultParallelism)
    numbers = spark.range(0, len(items), 1, tasks)
    answers = numbers.mapInArrow(partial(_answered, list(items), work), "item long, answer string").toArrow()
    found = dict(zip(answers["item"].to_pylist(), answers["answer"].to_pylist(), strict=True))
    return [json.loads(found[number]) for number in range(len(items))]


def _answered(
    items: list[Any], work: Callable[[Any], Any], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield pa.RecordBatch.from_pylist([{"item": number, "answer": json.dumps(work(items[number]))}], ANSWER)
