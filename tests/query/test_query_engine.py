"""The engine picks the caller's segments for the ranges the query needs, once per range."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakerunner.model.errors import NotAllowed, UserError
from lakerunner.model.time import ALL_TIME, MAX_NS, TimeRange
from lakerunner.query.answer import Answer
from lakerunner.query.sql import Question, SqlQueries
from lakerunner.query.unit import Unit
from query.sample_lake import HOUR, NOW, OWN, START, Elsewhere, Lake, Record, answer_of, removed


@pytest.fixture
def picked(lake: Lake) -> list[TimeRange]:
    lake.picks.clear()
    return lake.picks


def test_only_overlapping_segments_are_read(lake: Lake, picked: list[TimeRange]) -> None:
    seen: list[Unit] = []
    worker = lake.worker()

    class Watched:
        name = "watched"

        def run(self, unit: Unit) -> Answer:
            seen.append(unit)
            return worker.run(unit)

    engine = lake.engine(Watched())
    table = answer_of(engine, "SELECT count(*) AS n FROM logs WHERE timestamp >= '2024-01-01T22:30:00Z'")
    expected = sum(record.timestamp >= START + 22 * HOUR + HOUR // 2 for record, _ in lake.records)
    assert table.to_pydict() == {"n": [expected]}
    assert picked == [TimeRange(START + 22 * HOUR + HOUR // 2, MAX_NS)]
    assert len(seen[0].segments) == 2


def test_scans_over_the_same_range_are_picked_once(engine: SqlQueries, picked: list[TimeRange]) -> None:
    answer_of(engine, "SELECT count(*) FROM logs a JOIN logs b USING (trace_id)")
    assert picked == [ALL_TIME]


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT , 1", 'syntax error at or near "," (line 1, column 8)'),
        (
            "SELECT 'é',\n  a.message FROM logs a JOIN logs b ON WHERE a.severity = ''",
            'near "WHERE" (line 2, column 40)',
        ),
        ("SELECT rank() OVER (PARTITION BY ORDER BY timestamp) FROM logs", 'near "ORDER" (line 1, column 34)'),
        ("SELECT count(*) FROM logs * GROUP BY 1", 'near "*" (line 1, column 27)'),
        ("SELECT message FROM logs WHERE severity_number BETWEEN SYMMETRIC 1 AND 2", "(line 1, column 56)"),
    ],
)
def test_what_only_one_of_the_parsers_reads_is_refused(sql: str, said: str, engine: SqlQueries) -> None:
    with pytest.raises(UserError, match="the query cannot be read") as refused:
        engine.sql(OWN, Question(sql, NOW))
    assert said in str(refused.value)


def test_errors_of_the_text_come_at_once_and_pick_nothing(engine: SqlQueries, picked: list[TimeRange]) -> None:
    with pytest.raises(UserError):
        engine.sql(OWN, Question("SELECT nothing FROM logs", NOW))
    with pytest.raises(NotAllowed):
        engine.sql(OWN, Question("SELECT 1 FROM logs WHERE organization_id = 'x'", NOW))
    assert picked == []


def test_a_cache_that_someone_removes_is_filled_again(tmp_path: Path) -> None:
    """Of all directories that queries use on this machine; also while an answer is read."""
    lake = Lake(tmp_path)
    lake.add([Record(START, trace_id=b"0" * 16), Record(START + 1)])
    lake.add([Record(START + HOUR, message="refused")])
    lake.store = Elsewhere(tmp_path / "store")
    engine = lake.engine()
    questions = {
        "SELECT count(*) AS n FROM logs": [{"n": 3}],
        "SELECT message FROM logs WHERE message LIKE '%refuse%'": [{"message": "refused"}],
        f"SELECT count(*) AS n FROM logs a JOIN logs b USING (trace_id) WHERE trace_id = '{'30' * 16}'": [{"n": 1}],
    }
    for _ in range(2):
        for sql, rows in questions.items():
            assert answer_of(engine, sql).to_pylist() == rows
        removed(tmp_path / "cache")
        removed(tmp_path / "spill")
    for sql, rows in questions.items():
        assert answer_of(engine, sql).to_pylist() == rows
        for path in (tmp_path / "cache").glob("*.parquet"):
            path.unlink()
    answer = engine.sql(OWN, Question("SELECT message FROM logs ORDER BY timestamp DESC", NOW))
    assert answer.schema.names == ["message"]
    removed(tmp_path / "cache")
    assert [row for batch in answer for row in batch["message"].to_pylist()] == ["refused", "hello", "hello"]
