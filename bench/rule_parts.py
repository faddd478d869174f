"""CPU of evaluating rules over log lines beside that of ingesting them: 3 of 100 and of 1,000 rules match, and none.

The lines are those of _log_lines.py: half of them the demo shop's, a quarter JSON, a quarter logfmt. What ingest takes
is measured in the same process over the same lines; a rule's part of it is what `RuleParts` takes for the same row
groups. The ways take turns and the best turn of each counts. Exit code 1 if a target is missed or counts are wrong.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence

import pyarrow as pa

from _lake import FILES_AT_ONCE, ORGANIZATION
from _log_lines import mixed_batches
from lakerunner.model.metric_rules.metric_rule import Measure, MetricRule, RuleVersion
from lakerunner.model.segment import Column
from lakerunner.model.signal import LOGS
from lakerunner.model.source import SourceObject
from lakerunner.model.streams.stream_rules import DEFAULT_RULES
from lakerunner.pipeline.make_segments import make_segments
from lakerunner.pipeline.read.rows import Raw
from lakerunner.pipeline.rule_parts import RuleParts
from pipeline.segment_rows import rows_of_segments

_OTHERS = '{{service_name="absent-{}", k8s_namespace_name=~"shop|ingress"}} |= "error"'
# Three that match: volume by level of the shop's services, failed requests in JSON, bytes of failed ones in logfmt.
_MATCHING = {
    "volume": ('{service_name=~".+", service_name!~"edge|gateway"}', "count", ("detected_level", "service_name")),
    "errors": ('{service_name="edge"} | json | status >= 500', "count", ("method",)),
    "duration": ('{service_name="gateway"} |= "status=50" | logfmt', "sum(duration_ms)", ("host",)),
}
_TARGETS = {100: 1.1, 1000: 1.15}
Segments = Sequence[tuple[tuple[Column, ...], list[pa.RecordBatch]]]


def versions(count: int, matching: int) -> list[RuleVersion]:
    given = list(_MATCHING.items())[:matching]
    rules = [MetricRule(name, "logs", one, Measure.parse(kind), name, by) for name, (one, kind, by) in given]
    rules += [
        MetricRule(f"other-{n}", "logs", _OTHERS.format(n), Measure("count"), f"other_{n}", ("detected_level",))
        for n in range(count - len(rules))
    ]
    return [RuleVersion(n, ORGANIZATION, 1, rule) for n, rule in enumerate(rules)]


def evaluate(segments: Segments, rules: Sequence[RuleVersion]) -> dict[str, float]:
    """Return the CPU seconds of each rule."""
    seconds: dict[str, float] = {}
    for columns, batches in segments:
        parts = RuleParts(rules, columns, DEFAULT_RULES)
        for batch in batches:
            parts.add(batch)
        made = list(parts.finish())
        if len(made) != len(parts.counts):
            sys.exit("a rule that matches has no parts")
        for version, count in parts.counts.items():
            seconds[version.rule.name] = seconds.get(version.rule.name, 0.0) + count.seconds
    return seconds


def cpu(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def main() -> None:
    pa.set_cpu_count(1)  # as in a Spark task: figures are per core
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    raws = [
        Raw(SourceObject("b", f"{n}.binpb", "e", len(data), 1), memoryview(data))
        for n, data in enumerate(mixed_batches(0, options.rows))
    ]
    groups = [raws[first : first + FILES_AT_ONCE] for first in range(0, len(raws), FILES_AT_ONCE)]
    segments = [segment for raws in groups for segment in rows_of_segments(raws)]
    rows = sum(batch.num_rows for _, batches in segments for batch in batches)
    print(f"{rows} lines in {len(segments)} segments; best of {options.repeat}")

    def ingest() -> None:
        for raws in groups:
            make_segments(LOGS, ORGANIZATION, "bench", raws, lambda _path, _data: None)

    ways = {(count, matching): versions(count, matching) for count in _TARGETS for matching in (0, 3)}
    evaluate(segments, ways[100, 3])  # compiles kernels
    times: dict[object, float] = {}
    for _ in range(options.repeat):
        times["ingest"] = min(times.get("ingest", 1e9), cpu(ingest))
        for way, rules in ways.items():
            times[way] = min(times.get(way, 1e9), cpu(lambda rules=rules: evaluate(segments, rules)))
    plain = times.pop("ingest")
    print(f"ingest          {plain:6.2f} s {rows / plain:9.0f} lines/s")
    missed = False
    for (count, matching), seconds in ((way, times[way]) for way in ways):
        ratio = (plain + seconds) / plain
        missed |= ratio > _TARGETS[count]
        print(f"{count:5} rules, {matching} match: {seconds / rows * 1e9:5.0f} ns/line, {ratio:.3f}x of ingest's CPU")
    for name, seconds in evaluate(segments, ways[100, 3]).items():
        print(f"  {name:10} {seconds / rows * 1e9:5.0f} ns/line")
    if missed:
        sys.exit(f"targets are {_TARGETS}")


if __name__ == "__main__":
    main()
