"""Orders as Avro into a table of PostgreSQL, by two runs of one pipeline.

    python examples/orders_to_postgres/run.py

Starts ZooKeeper, a broker and PostgreSQL; ``zkconsumer pipeline run`` reads the orders that are there, and ends; more
orders come; the second run continues.  Compares the tables with what was produced.
Exit code: 0 each order is where it must be, 1 not so, 2 wrong arguments, 3 Java, Maven, Spark or PostgreSQL is missing.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from zkconsumer.errors import SandboxError
from zkconsumer.testing.sandbox import Sandbox, missing_requirement, missing_spark_requirement, zookeeper_release
from zkconsumer.testing.sandbox.postgres_process import (
    DATABASE,
    USER,
    PostgresServer,
    missing_for_postgres,
    run_postgres,
)
from zkconsumer.testing.sandbox.waiting import HOST

HERE = Path(__file__).resolve().parent
KAFKA, ZOOKEEPER = "3.9.1", "3.8"
TOPIC = "orders"
PARTITIONS = 3
RUN_TIMEOUT_S = 300

CODE_RIGHT, CODE_WRONG, CODE_MISSING = 0, 1, 3

Place = tuple[int, int]
"""Partition and offset."""


def missing() -> str | None:
    """What this machine lacks, as a sentence, or None."""
    if importlib.util.find_spec("fastavro") is None:
        return "fastavro is not installed: pip install '.[avro]'"
    lack = missing_for_postgres() or missing_requirement(KAFKA, zookeeper_release(ZOOKEEPER))
    return lack or missing_spark_requirement()


def produce(sandbox: Sandbox, numbers: dict[Place, int], count: int) -> None:
    """``count`` further orders, in all partitions alike; ``numbers`` gets the number of each."""
    from order_records import order

    first = len(numbers)
    for partition in range(PARTITIONS):
        wanted = range(first + partition, first + count, PARTITIONS)
        sent = sandbox.produce(TOPIC, partition, [order(number) for number in wanted])
        offsets = range(sent.first, sent.last + 1)
        numbers |= {(partition, offset): n for offset, n in zip(offsets, wanted, strict=True)}


def run_pipeline(file: Path, password: str) -> str:
    """``zkconsumer pipeline run FILE``; its last line.  ``SandboxError``: it failed."""
    command = [sys.executable, "-c", "from zkconsumer.cli import main; main()", "pipeline", "run", str(file)]
    done = subprocess.run(
        [*command, "--master", "local[2]", "--conf", "spark.ui.enabled=false"],
        env={"SPARK_LOCAL_IP": "127.0.0.1", **os.environ, "ORDERS_PASSWORD": password},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=RUN_TIMEOUT_S, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise SandboxError(f"the pipeline ended with code {done.returncode}:\n{done.stdout}")
    return done.stdout.splitlines()[-1]


def run(sandbox: Sandbox, postgres: PostgresServer, folder: Path, count: int) -> dict[str, Any]:
    """All steps; the result."""
    sandbox.start_zookeeper(ZOOKEEPER)
    sandbox.start_broker(KAFKA, chroot="/kafka")
    sandbox.create_topic(TOPIC, PARTITIONS)
    print(f"1. ZooKeeper {ZOOKEEPER}, Kafka {KAFKA} and PostgreSQL run; topic {TOPIC} gets {count} orders")
    text = (HERE / "pipeline.toml").read_text("utf-8")
    text = text.replace("127.0.0.1:2181/kafka", sandbox.zookeeper_connect)
    text = text.replace("127.0.0.1:5432/postgres", f"{HOST}:{postgres.port}/{DATABASE}")
    file = folder / "pipeline.toml"
    file.write_text(text, "utf-8")
    shutil.copy(HERE / "order.avsc", folder)
    password = postgres.password_file.read_text()
    numbers: dict[Place, int] = {}
    for step, name in ((2, "first"), (3, "second")):
        produce(sandbox, numbers, count)
        print(f"{step}. zkconsumer pipeline run, the {name} run: {run_pipeline(file, password)}", flush=True)
        if step == 2:
            print(f"   {count} more orders come, and the pipeline is started again")
    return compare(postgres, password, numbers)


def compare(postgres: PostgresServer, password: str, numbers: dict[Place, int]) -> dict[str, Any]:
    """Each order is a row, a dead letter or filtered, once."""
    import psycopg
    from order_records import FILTERED, OF_DECODE, OF_SINK, ROW, outcome_of

    with psycopg.connect(host=HOST, port=postgres.port, dbname=DATABASE, user=USER, password=password) as connection:
        rows = Counter(connection.execute('SELECT partition, "offset" FROM orders').fetchall())
        dead = connection.execute('SELECT partition, "offset", stage FROM orders_dead_letters').fetchall()
        total = connection.execute("SELECT count(*), sum(amount) FROM orders WHERE customer = 'customer 1'").fetchone()
        counts = "sum((lineage->'counts'->>'filtered')::int), count(*)"
        filtered, batches = connection.execute(f"SELECT {counts} FROM zkconsumer_batches").fetchone() or (0, 0)
    assert total is not None, "an aggregate has one row"
    expected = {kind: Counter(place for place, n in numbers.items() if outcome_of(n) == kind) for kind in (
        ROW, FILTERED, OF_DECODE, OF_SINK)}  # fmt: skip
    found = {
        stage: Counter((partition, offset) for partition, offset, each in dead if each == stage)
        for stage in (OF_DECODE, OF_SINK)
    }
    seen = rows + Counter((partition, offset) for partition, offset, _ in dead)
    return {
        "produced": len(numbers),
        "rows": rows.total(),
        "dead_decode": found[OF_DECODE].total(),
        "dead_sink": found[OF_SINK].total(),
        "filtered": filtered,
        "batches": batches,
        "customer_1": [total[0], str(total[1])],
        "lost": len(numbers) - len(seen) - filtered,
        "double": seen.total() - len(seen),
        "is_right": rows == expected[ROW]
        and all(found[stage] == expected[stage] for stage in found)
        and filtered == expected[FILTERED].total()
        and len(dead) == sum(each.total() for each in found.values()),
    }


def print_result(found: dict[str, Any]) -> None:
    """The final table."""
    lines = {
        "rows in table orders": found["rows"],
        "dead letters in table orders_dead_letters": found["dead_decode"] + found["dead_sink"],
        "  stage decode (Avro that ends in the middle)": found["dead_decode"],
        "  stage sink (a text that PostgreSQL cannot store)": found["dead_sink"],
        "filtered (cancelled)": found["filtered"],
        "lost": found["lost"],
        "double": found["double"],
        "produced": found["produced"],
    }
    width = max(map(len, lines))
    print()
    for name, number in lines.items():
        print(f"{name:<{width}}  {number:>6}")
    orders, amount = found["customer_1"]
    print(f"\nSELECT count(*), sum(amount) FROM orders WHERE customer = 'customer 1': {orders}, {amount}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Orders as Avro into a table of PostgreSQL, by two runs.")
    parser.add_argument("--orders", type=int, default=300, help="orders before each run (default: 300)")
    parser.add_argument("--json", type=Path, help="a file for the result")
    given = parser.parse_args()
    lack = missing()
    if lack is not None:
        print(lack, file=sys.stderr)
        return CODE_MISSING
    with tempfile.TemporaryDirectory(prefix="orders-") as name, Sandbox() as sandbox, run_postgres() as postgres:
        try:
            found = run(sandbox, postgres, Path(name), given.orders)
        except SandboxError as error:
            print(error, file=sys.stderr)
            return CODE_WRONG
    print_result(found)
    if given.json is not None:
        given.json.write_text(json.dumps(found))
    return CODE_RIGHT if found["is_right"] and not found["lost"] and not found["double"] else CODE_WRONG


if __name__ == "__main__":
    sys.exit(main())
