"""The operator of listings: what there is of metrics, as rows of JSON values, so that they can travel.

docs/formats/workers.md has the rows. series: [[name, value], ...]; label_names, label_values: text; metadata: [metric,
type, unit, help]; exemplars: [labels, [[labels, value, ms], ...]], the value as text, since JSON has no NaN;
metric_names: text; sketches: [metric, window's end in ms, sketch in base64]; label_counts: [whose, label, values or
null, sketch of them in base64 or null].
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lakerunner.promql.sample_range import Selection
from lakerunner.query.metrics.active import SketchRequest, label_counts, names_of, sketches_of
from lakerunner.query.metrics.exemplars import exemplars_of
from lakerunner.query.metrics.listing import label_names, label_values, metadata_of, series_of
from lakerunner.query.metrics.unit_series import UnitSeries
from lakerunner.series.evaluation.operator import SeriesOperator
from lakerunner.series.evaluation.pieces import Listed, Piece


@dataclass(frozen=True)
class ListSeries(SeriesOperator):
    """List what there is of the selection; one row past `limit` says that there is more. `label` is the one whose
    values are wanted. `metrics` and `step` (ms) are of sketches: which metrics, by their names as they came, none: all;
    and how wide the windows are that they are for."""

    name = "list"

    what: Literal[
        "series", "label_names", "label_values", "metadata", "exemplars", "metric_names", "sketches", "label_counts"
    ]
    selection: Selection
    limit: int
    label: str = ""
    metrics: tuple[str, ...] = ()
    step: int = 0

    def run(self, series: UnitSeries) -> Iterator[Piece]:
        rows = []
        for row in self._rows(series):
            series.check()
            rows.append(row)
            if len(rows) > self.limit:
                break
        series.read_all()
        yield Piece(Listed(rows))

    def to_json(self) -> dict[str, Any]:
        return {
            "what": self.what,
            "selection": self.selection.to_json(),
            "limit": self.limit,
            "label": self.label,
            "metrics": self.metrics,
            "step": self.step,
        }

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> ListSeries:
        selection, metrics = Selection.from_json(given["selection"]), tuple(given["metrics"])
        return cls(given["what"], selection, given["limit"], given["label"], metrics, given["step"])

    def lines(self) -> Iterator[str]:
        yield f"list {self.what.replace('_', ' ')}" + (f" of {self.label}" if self.label else "")

    def _rows(self, series: UnitSeries) -> Iterator[Any]:
        metrics, segments, tiles = series.metrics, series.segments, series.tiles
        matchers, between = self.selection.matchers, (self.selection.start, self.selection.end)
        wanted = SketchRequest(self.metrics, self.step, self.limit)
        match self.what:
            case "series":
                yield from series_of(metrics, segments, matchers, *between)
            case "label_names":
                yield from sorted(label_names(metrics, segments, matchers))
            case "label_values":
                yield from sorted(label_values(metrics, segments, matchers, self.label, between))
            case "metadata":
                for family in metadata_of(metrics, segments):
                    yield [family.name, family.type, family.unit, family.help]
            case "exemplars":
                for labels, exemplars in exemplars_of(metrics, segments, matchers, between[0] + 1, between[1]):
                    yield [labels, [[one.labels, repr(one.value), one.time] for one in exemplars]]
            case "metric_names":
                yield from sorted(names_of(metrics, segments, self.label))
            case "sketches":
                for metric, end, sketch in sketches_of(metrics, segments, wanted, tiles):
                    yield [metric, end, b64encode(sketch).decode()]
            case "label_counts":
                for whose, label, values, many in label_counts(metrics, segments, wanted, tiles):
                    yield [whose, label, values, many and b64encode(many).decode()]
