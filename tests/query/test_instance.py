"""Instances are used again, and nothing of one piece of work is there for the next."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from uuid import UUID

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakerunner.model.errors import Unavailable
from lakerunner.query.failures import Limits
from lakerunner.query.held import HeldFile
from lakerunner.query.instance import Instances

ONE, TWO = UUID(int=1), UUID(int=2)


@pytest.fixture
def instances(tmp_path: Path) -> Instances:
    return Instances(Limits("60MB", 30.0, 1000), threads=1, spill_directory=tmp_path / "spill")


def written(directory: Path, name: str, value: int) -> HeldFile:
    path = directory / name
    pq.write_table(pa.table({"x": [value]}), path)
    return HeldFile(path)


def number(connection: duckdb.DuckDBPyConnection) -> int:
    """Which instance it is: a number that stays in its catalog."""
    connection.execute("CREATE SEQUENCE IF NOT EXISTS uses")
    ((uses,),) = connection.execute("SELECT nextval('uses')").fetchall()
    return int(uses)


def test_one_after_the_other_share_an_instance_and_two_at_once_do_not(instances: Instances) -> None:
    with ExitStack() as held:
        assert number(instances.open(held)) == 1
    with ExitStack() as held:
        assert number(instances.open(held)) == 2
        assert number(instances.open(held)) == 1


def test_the_next_sees_neither_files_nor_views_of_the_one_before(instances: Instances, tmp_path: Path) -> None:
    files = {ONE: written(tmp_path, "a", 1), TWO: written(tmp_path, "b", 2)}
    with ExitStack() as held:
        connection, linked = instances.open_over(held, {ONE: files[ONE]})
        first = linked[ONE].path
        connection.execute(f"CREATE TEMP VIEW v AS SELECT x FROM read_parquet('{first}')")
        connection.register("given", pa.table({"x": [1]}))
        assert connection.execute("SELECT v.x FROM v JOIN given USING (x)").fetchall() == [(1,)]
    assert not first.exists()
    with ExitStack() as held:
        connection, linked = instances.open_over(held, {TWO: files[TWO]})
        assert linked[TWO].path.parent == first.parent
        assert connection.execute(f"SELECT x FROM read_parquet('{linked[TWO].path}')").fetchall() == [(2,)]
        for sql in ("SELECT * FROM v", "SELECT * FROM given"):
            with pytest.raises(duckdb.CatalogException):
                connection.execute(sql)
        with pytest.raises(duckdb.IOException, match="No files found"):
            connection.execute(f"SELECT * FROM read_parquet('{first}')")
    assert list((tmp_path / "spill").iterdir()) == []
    assert files[ONE].path.exists()


def test_two_at_once_do_not_reach_each_others_files(instances: Instances, tmp_path: Path) -> None:
    with ExitStack() as held:
        one, of_one = instances.open_over(held, {ONE: written(tmp_path, "a", 1)})
        two, of_two = instances.open_over(held, {TWO: written(tmp_path, "b", 2)})
        for connection, other in ((one, of_two[TWO]), (two, of_one[ONE])):
            with pytest.raises(duckdb.PermissionException, match="disabled by configuration"):
                connection.execute(f"SELECT * FROM read_parquet('{other.path}')")
        for sql in ("SET memory_limit = '1TB'", "SET allowed_directories = ['/']", "SET TimeZone = 'Asia/Tokyo'"):
            with pytest.raises(duckdb.Error, match="locked"):
                one.execute(sql)
        assert one.execute("SELECT current_setting('TimeZone')").fetchall() == [("UTC",)]


def test_one_that_spilled_is_not_used_again(instances: Instances) -> None:
    with ExitStack() as held:
        connection = instances.open(held)
        number(connection)
        connection.sql("SELECT x, md5(x::VARCHAR) AS m FROM range(1200000) t(x) ORDER BY m").to_arrow_reader().close()
    with ExitStack() as held:
        assert number(instances.open(held)) == 1


def test_no_more_than_four_are_kept(instances: Instances) -> None:
    with ExitStack() as held:
        for _ in range(6):
            number(instances.open(held))
    with ExitStack() as held:
        assert sorted(number(instances.open(held)) for _ in range(6)) == [1, 1, 2, 2, 2, 2]


def test_a_file_that_cannot_be_linked_is_said(instances: Instances, tmp_path: Path) -> None:
    with ExitStack() as held, pytest.raises(Unavailable, match="need one file system, with hard links"):
        instances.open_over(held, {ONE: HeldFile(tmp_path / "absent")})
    with ExitStack() as held:
        number(instances.open(held))
