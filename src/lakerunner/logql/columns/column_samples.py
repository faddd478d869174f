"""The samples of a range aggregation from columns: what log_samples.py does row by row, for whole batches.

Comes in: batches of the scan that `SampleColumns.needs` describes. Goes out: `SampleBatch`, columns of samples. What
always holds: the samples are those of the rows. Rows of equal labels are looked at once, by the code of rows; odd rows
one by one. A sample with an error has all labels of its line, which are not read here: `NotByColumns` then says that
the rows must be read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.logql.columns.column_stages import SplitStages, leave_to_rows, split_stages
from lakerunner.logql.columns.line_columns import ColumnReader, LineColumns, LineNeeds, joint_codes
from lakerunner.logql.stages.hints import hints_of
from lakerunner.logql.stages.line_labels import ERROR, ERROR_DETAILS, PRESERVE_ERROR, LineLabels
from lakerunner.logql.stages.sample import OF_BYTES, compile_extractor, label_needs
from lakerunner.logql.text.syntax import Grouping, LabelFilter, LineFilter, RangeAggregation
from lakerunner.model.errors import UserError
from lakerunner.model.labels import Labels
from lakerunner.model.streams.stream_rules import StreamRules
from lakerunner.plan.scan import ARRIVED, ROW_NUMBER

_NO_SAMPLE = -1
_PLAIN_NUMBER = r"^-?[0-9]{1,15}(\.[0-9]{1,15})?$"  # no conversion of these fails
_OF_SAMPLES = ["timestamp", ARRIVED, ROW_NUMBER, "delivery", "delivery_row"]


# Makes the samples of the lines of a batch.
SampleRun = Callable[[LineColumns], Iterator["SampleBatch"]]


class NotByColumns(Exception):
    """A sample has an error."""


@dataclass(frozen=True)
class SampleBatch:
    """Samples of rows: the number of each one's series among `series`, its value, and the row that it is made of."""

    series: list[Labels]
    codes: Any
    values: Any
    rows: pa.RecordBatch


@dataclass(frozen=True)
class SampleColumns:
    """A range aggregation that runs over columns. `keeps_errors`: a sample with an error is one of the series with the
    single label `__error__`, unless the query names that label: then it has those of its labels that are pushed."""

    aggregation: RangeAggregation
    pushed: Grouping | None
    now_ns: int
    needs: LineNeeds
    stages: SplitStages
    keeps_errors: bool = False

    @property
    def is_of_bytes(self) -> bool:
        return _adds_bytes(self.aggregation)

    @classmethod
    def of(
        cls, aggregation: RangeAggregation, pushed: Grouping | None, rules: StreamRules, now_ns: int
    ) -> SampleColumns | None:
        """Return None if the aggregation only runs by rows."""
        hints = hints_of(label_needs(aggregation, pushed))
        stages = split_stages(aggregation.lines.pipeline.stages, hints)
        if stages is None:
            return None
        return cls(aggregation, pushed, now_ns, _needs(aggregation, pushed, rules, stages), stages)

    @classmethod
    def of_rule(cls, aggregation: RangeAggregation, pushed: Grouping, rules: StreamRules) -> SampleColumns:
        """Return the same for the query of a rule (rule_query.py), with its errors. If not all of its stages run over
        columns, line filters alone do."""
        own = aggregation.lines.pipeline.stages
        stages = split_stages(own, hints_of(label_needs(aggregation, pushed))) or leave_to_rows(own)
        return cls(aggregation, pushed, 0, _needs(aggregation, pushed, rules, stages), stages, keeps_errors=True)

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[SampleBatch]:
        """Yield the samples of each batch. Raise NotByColumns if one needs labels that were not read."""
        reader = ColumnReader(self.aggregation.lines.pipeline.matchers, self.needs)
        run = self.compiled(reader.find_origins)
        for batch in batches:
            yield from run(reader.select(batch))

    def compiled(self, find_origins: Callable[[LineColumns], None], own: Sequence[str] = _OF_SAMPLES) -> SampleRun:
        """Return what makes samples of selected lines, whose origins are found behind the line filters. `own` are the
        columns of the lines that the samples keep."""
        of_labels = self._of_labels()
        of_rows = _Extractor(self, self.aggregation)

        def run(columns: LineColumns) -> Iterator[SampleBatch]:
            for stage in self.stages.filters:
                stage(columns)
            if not len(columns):
                return
            find_origins(columns)
            for stage in self.stages.others:
                stage(columns)
            yield self._common(columns, of_labels, own)
            if columns.odd.any():
                yield self._odd(columns, of_rows, own)

        return run

    def run_groups(
        self, batches: Iterable[pa.RecordBatch], own: Sequence[str], *, filtered: bool
    ) -> Iterator[SampleBatch]:
        """Yield a sample for each row of batches whose rows stand for many lines; `own` are their columns that the
        samples keep. `filtered`: all of these lines pass the line filters. Raise NotByColumns if a row is odd."""
        reader = ColumnReader(self.aggregation.lines.pipeline.matchers, self.needs)
        of_labels = self._of_labels()
        for batch in batches:
            columns = reader.select(batch)
            for stage in () if filtered else self.stages.filters:
                stage(columns)
            reader.find_origins(columns)
            for stage in self.stages.others:
                stage(columns)
            if columns.odd.any():
                raise NotByColumns
            yield self._common(columns, of_labels, own)

    def _of_labels(self) -> _Extractor:
        lines = self.aggregation.lines
        rest = replace(lines, pipeline=replace(lines.pipeline, stages=self.stages.of_labels))
        return _Extractor(self, replace(self.aggregation, lines=rest))

    def _common(self, columns: LineColumns, extract: _Extractor, own: Sequence[str]) -> SampleBatch:
        """Return the samples of the rows that are not odd."""
        rows = np.flatnonzero(~columns.odd)
        places = pa.array(rows)
        parsed = {name: column.take(places) for name, column in columns.parsed.items()}
        plain = self._take_plain_numbers(parsed)
        bases = columns.base_codes[rows]
        numbers, first = joint_codes([bases, *parsed.values()])
        given = [column.take(pa.array(first, pa.int64())).to_pylist() for column in parsed.values()]
        found = _Samples()
        for number, *values_of in zip(bases[first].tolist(), *given, strict=True):
            labels = LineLabels(*columns.bases[number])
            for name, value in zip(parsed, values_of, strict=True):
                if value is not None:
                    labels.set_parsed(name, value)
            found.add(extract(0, "", labels), labels, extract)
        codes, values = np.array(found.codes, np.int64)[numbers], np.array(found.values)[numbers]
        if plain is not None:
            values = np.where(plain.is_valid(), plain.fill_null(0.0), values)
        made = codes != _NO_SAMPLE
        kept = pa.array(rows[made])
        values = values[made]
        if self.is_of_bytes and columns.lines is not None:
            values = pc.binary_length(columns.lines.take(kept)).to_numpy(zero_copy_only=False).astype(np.float64)
        return SampleBatch(list(found.series), codes[made], values, _rows(columns, kept, own))

    def _take_plain_numbers(self, parsed: dict[str, pa.Array]) -> pa.Array | None:
        """Return the values of samples whose texts are plain numbers, null for other texts. They leave equal texts in
        their place, because most lines have a number of their own and the rows of each text are looked at."""
        unwrap = self.aggregation.lines.unwrap
        if unwrap is None or unwrap.label not in parsed or not self._hides_number:
            return None
        texts = parsed[unwrap.label]
        is_plain = pc.match_substring_regex(texts, _PLAIN_NUMBER).fill_null(False)
        parsed[unwrap.label] = pc.if_else(is_plain, "0", texts)
        return pc.if_else(is_plain, texts, None).cast(pa.float64())

    @cached_property
    def _hides_number(self) -> bool:
        """Return whether only the value of a sample shows the number that it was made of."""
        unwrap, needs = self.aggregation.lines.unwrap, label_needs(self.aggregation, self.pushed)
        if unwrap is None or unwrap.conversion or unwrap.filters or self.stages.of_labels:
            return False
        return not needs.has_labels or (unwrap.label in needs.groups) == needs.without

    @cached_property
    def _looks_at_labels(self) -> bool:
        """Return whether the sample of a line that json cannot read depends on its stored labels alone."""
        stages, needs = self.aggregation.lines.pipeline.stages, label_needs(self.aggregation, self.pushed)
        if self.is_of_bytes or ERROR_DETAILS in (*needs.names, *needs.groups, needs.unwrap):
            return False
        return len([one for one in stages if not isinstance(one, LineFilter | LabelFilter)]) == 1

    def _odd(self, columns: LineColumns, extract: _Extractor, own: Sequence[str]) -> SampleBatch:
        found = _Samples()
        rows = np.flatnonzero(columns.odd)
        times = columns.batch.column("timestamp")
        alike = columns.alike if self._looks_at_labels else np.zeros(len(columns), np.bool_)
        known: dict[int, int] = {}  # by the number of their origin the first of rows that are alike
        for place, row in enumerate(rows.tolist()):
            origin = int(columns.origin_codes[row])
            if alike[row] and columns.origins[origin].level is not None:
                first = known.setdefault(origin, place)
                if first < place:
                    found.repeat(first)
                    continue
            labels = LineLabels(*columns.row_labels(row))
            found.add(extract(times[row].as_py(), columns.line(row), labels), labels, extract)
        codes = np.array(found.codes, np.int64)
        made = codes != _NO_SAMPLE
        kept = _rows(columns, pa.array(rows[made]), own)
        return SampleBatch(list(found.series), codes[made], np.array(found.values)[made], kept)


def _rows(columns: LineColumns, rows: pa.Array, own: Sequence[str]) -> pa.RecordBatch:
    kept = columns.batch.select(list(own))
    return kept if len(rows) == len(kept) else kept.take(rows)


def _needs(
    aggregation: RangeAggregation, pushed: Grouping | None, rules: StreamRules, stages: SplitStages
) -> LineNeeds:
    labels = label_needs(aggregation, pushed)
    any_label = labels.has_labels and (labels.without or not labels.groups)
    names = None if any_label else (*labels.names, *labels.groups, labels.unwrap)
    return LineNeeds.of(names, rules, line=stages.reads_line or _adds_bytes(aggregation))


def _adds_bytes(aggregation: RangeAggregation) -> bool:
    return aggregation.lines.unwrap is None and aggregation.op in OF_BYTES


class _Extractor:
    """The extractor of rows. It gives up at an error, which would show labels that were not read, and those of the
    first row that has one; unless errors are kept."""

    def __init__(self, columns: SampleColumns, aggregation: RangeAggregation) -> None:
        self._extract = compile_extractor(aggregation, columns.pushed, columns.now_ns)
        self._keeps_errors = columns.keeps_errors
        self._pushed = frozenset(columns.pushed.labels if columns.pushed else ())

    def __call__(self, timestamp_ns: int, line: str, labels: LineLabels) -> float | None:
        try:
            return self._extract(timestamp_ns, line, labels)
        except UserError as error:  # what a stage refuses of this line, such as too large a value
            if not self._keeps_errors:
                raise
            labels.delete(PRESERVE_ERROR)
            labels.error = type(error).__name__
            return 0.0

    def series(self, labels: LineLabels) -> Labels:
        if not labels.error:
            return self._extract.series(labels)
        if not self._keeps_errors:
            raise NotByColumns
        if labels.get(PRESERVE_ERROR) != "true":
            return ((ERROR, labels.error),)
        return tuple(sorted((name, value) for name, value in labels.all().items() if name in self._pushed))


class _Samples:
    """Collects values and series, _NO_SAMPLE for labels that give none."""

    def __init__(self) -> None:
        self.series: dict[Labels, int] = {}
        self.codes: list[int] = []
        self.values: list[float] = []

    def repeat(self, place: int) -> None:
        """Add a sample like that at this place."""
        self.codes.append(self.codes[place])
        self.values.append(self.values[place])

    def add(self, value: float | None, labels: LineLabels, extract: _Extractor) -> None:
        code = _NO_SAMPLE if value is None else self.series.setdefault(extract.series(labels), len(self.series))
        self.codes.append(code)
        self.values.append(0.0 if value is None else value)
