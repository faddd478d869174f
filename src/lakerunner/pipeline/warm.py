"""Compile the jitted code of merges and rollups, or load it from numba's cache, so that the first ones do not wait for
it. What it makes is in a directory of its own, and gone afterwards."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID

from lakerunner.model.signal import SIGNALS, SignalSpec
from lakerunner.model.source import SourceObject
from lakerunner.model.tier import RAW, TIERS
from lakerunner.objects.local import LocalStore
from lakerunner.objects.open import StoreAddress
from lakerunner.pipeline.compact import CompactLimits, CompactWork, compact_work
from lakerunner.pipeline.read.rows import Raw
from lakerunner.pipeline.read.sample import SAMPLES
from lakerunner.pipeline.rollup.work import RollupWork, rollup_work
from lakerunner.pipeline.segments import make_segments

_NOBODY = UUID(int=0)
_LIMITS = CompactLimits(memory=64 << 20, max_bytes=1 << 30)


def warm() -> None:
    with TemporaryDirectory() as name:
        for signal in SAMPLES:
            _tend(SIGNALS[signal], Path(name))


def _tend(spec: SignalSpec, directory: Path) -> None:
    store, data = LocalStore(directory), SAMPLES[spec.name]()
    segments = []
    for number in (1, 2):
        source = SourceObject("sample", f"{spec.name}{number}", "sample", len(data), 0)
        made = make_segments(spec, _NOBODY, "sample", [Raw(source, memoryview(data))], store.put)
        segments += [replace(segment, ingested=number) for segment in made.segments]
    first = [segment for segment in segments if segment.path.split("/")[2:5] == segments[0].path.split("/")[2:5]]
    address = StoreAddress(directory.as_uri())
    outcomes = [compact_work(CompactWork(_NOBODY, "sample", spec.name, RAW, 1, tuple(first)), address, _LIMITS)]
    if spec.name == "metrics":
        touched = tuple(first)
        for source_tier, tier in zip((RAW, *TIERS[:1]), TIERS[:2], strict=True):
            rolled = rollup_work(RollupWork(_NOBODY, "sample", source_tier, tier, touched, touched), address, _LIMITS)
            outcomes.append(rolled)
            touched = rolled.segments
    assert not any(outcome.error for outcome in outcomes), outcomes  # noqa: S101 - our own constant
