"""A backup holds what its dump names, whatever happens meanwhile, and a lake that is made of it is the same lake."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from click.testing import CliRunner

from lakerunner.cli import cli
from lakerunner.index.api_keys import digest
from lakerunner.index.commit import Commit
from lakerunner.index.database import Database
from lakerunner.index.embedded import EmbeddedPostgres
from lakerunner.index.index import Index
from lakerunner.index.snapshot import refuse_newer
from lakerunner.model.errors import Corrupt, LakerunnerError, NotFound, Unavailable, UserError
from lakerunner.model.organization import Role
from lakerunner.model.source import Routes, SourceObject, SourceState
from lakerunner.objects.local import LocalStore
from lakerunner.objects.open import StoreAddress, open_store
from lakerunner.objects.store import ObjectStore
from lakerunner.services.announce import Announcer, Lister, Newcomers
from lakerunner.services.backup.manifest import Manifest, list_backups
from lakerunner.services.backup.restore import run_restore
from lakerunner.services.backup.take import BackupRequest, run_backup
from lakerunner.services.ground import administered, inspected
from lakerunner.settings import Settings
from servers.lake import LAKERUNNER, clean_environment, wait_until
from servers.postgres import drop_database, fresh_database
from servers.seaweedfs import S3Server
from suites.checked import ORG, CheckedLake, checked_lake, logs_of, points_of, spans_of
from suites.rules import ERRORS

RAW = "otel-raw/default/edge/"
KEYS = [RAW + name for name in ("logs_done.binpb", "logs_waiting.binpb", "logs_new.binpb")]
TABLES = (
    *("organizations", "api_keys", "segments", "column_sets", "source_objects", "outbox", "retention", "migrations"),
    *("metric_rules", "rule_sets"),
)


@pytest.fixture
def lake(embedded_postgres_url: str, tmp_path: Path) -> Iterator[CheckedLake]:
    """Three segments; of three raw objects one is ingested, one announced, one just there."""
    (tmp_path / "lake").mkdir()
    with checked_lake(embedded_postgres_url, tmp_path / "lake") as made:
        made.add("logs", logs_of("a", "b"))
        made.add("metrics", points_of(1, 2, 3))
        made.add("traces", spans_of("a", "b"))
        for key in KEYS:
            made.store.put(key, logs_of(key))
        announcer = announcer_of(made.index, made.store)
        announcer.keys(KEYS[:2])
        made.index.commit(Commit((), (source_at(made.store, KEYS[0]),), ()))
        yield made


@pytest.fixture
def place(tmp_path: Path) -> LocalStore:
    (tmp_path / "backups").mkdir()
    return LocalStore(tmp_path / "backups")


@pytest.fixture
def empty(embedded_postgres_url: str, tmp_path: Path) -> Iterator[Settings]:
    """Where a lake can be restored to: a database and a store that hold nothing."""
    url = fresh_database(embedded_postgres_url)
    yield Settings(home=tmp_path / "new", database_url=url, store=(tmp_path / "new-store").as_uri())
    drop_database(url)


def announcer_of(index: Index, store: ObjectStore) -> Announcer:
    return Announcer(index, store, Routes().route_of)


def source_at(store: ObjectStore, key: str) -> SourceObject:
    meta = store.head(key)
    return SourceObject(store.bucket, key, meta.etag or "", meta.size, meta.modified_ns)


def ignore(_progress: str) -> None:
    """Show no progress."""


def back_up(lake: CheckedLake, place: ObjectStore, say: Callable[[str], None] = ignore, **request: bool) -> Manifest:
    return run_backup(lake.settings, place, BackupRequest(**request), say)


def files_of(store: LocalStore) -> dict[str, str]:
    return {meta.key: hashlib.sha256(store.get(meta.key, max_bytes=1 << 20)).hexdigest() for meta in store.list("")}


def rows_of(url: str, *leave_out: str) -> dict[str, list[dict[str, Any]]]:
    """Every row of the tables, as JSON, without these columns."""
    with psycopg.connect(url) as connection:
        found = {
            table: [row for (row,) in connection.execute(f"SELECT to_json(t) FROM lrdb.{table} t ORDER BY t::text")]
            for table in TABLES
        }
    return {
        table: [{key: value for key, value in row.items() if key not in leave_out} for row in rows]
        for table, rows in found.items()
    }


def listed_anew(settings: Settings, store: ObjectStore) -> list[str]:
    """The keys that a lister announces, who knows nothing but the index."""
    index = Index.open(settings.database_url, connections=2)
    try:
        before = {one.source.key for one in index.sources.list(None)}
        lister = Lister(Newcomers(index, store), announcer_of(index, store), Routes().roots, 0)
        lister.poll(1 << 62)
        return sorted({one.source.key for one in index.sources.list(None)} - before)
    finally:
        index.close()


def test_a_restored_lake_is_the_same_lake(lake: CheckedLake, place: LocalStore, empty: Settings) -> None:
    secret = lake.index.keys.create(ORG.id, "shop", frozenset({Role.READ}))
    version = lake.index.metric_rules.put(ORG.id, ERRORS)
    with lake.index.pool.connection() as connection:
        connection.execute("INSERT INTO lrdb.rule_sets VALUES (7, %s)", [[version.id]])
        connection.execute("UPDATE lrdb.segments SET rule_set = 7 WHERE signal = 'logs'")
    made = back_up(lake, place)
    assert (made.files, made.raw_objects, made.lost, made.bucket) == (7, 3, 0, "local")
    after = source_at(lake.store, KEYS[1])
    assert run_restore(empty, place, None, ignore) == made
    restored = LocalStore(Path(empty.store.removeprefix("file://")))
    assert files_of(restored) == files_of(lake.store)
    assert rows_of(empty.database_url, "modified_ns") == rows_of(lake.settings.database_url, "modified_ns")
    assert listed_anew(empty, restored) == [KEYS[2]]
    copy = CheckedLake(Index.open(empty.database_url, connections=2), restored, empty)
    found = copy.index.keys.find(digest(secret))
    assert found is not None
    assert copy.index.sources.states([after.identity]) == {after.identity: SourceState.SEEN}
    code, said = copy.fsck(deep=True)
    assert (code, said["errors"], said["looked_at"]["segments"]) == (0, 0, 3)
    copy.index.close()


def test_another_kind_of_store_gets_the_objects_under_its_own_names(
    lake: CheckedLake, place: LocalStore, empty: Settings
) -> None:
    """Its etags are others, and so is its name: nothing that was ingested may seem new."""
    back_up(lake, place)
    elsewhere = replace(empty, store=f"memory://{uuid4().hex}")
    run_restore(elsewhere, place, None, ignore)
    store = open_store(StoreAddress(elsewhere.store))
    assert listed_anew(elsewhere, store) == [KEYS[2]]
    index = Index.open(elsewhere.database_url, connections=2)
    waiting = source_at(store, KEYS[1])
    assert index.sources.states([source_at(store, key).identity for key in KEYS[:2]]) == {
        source_at(store, KEYS[0]).identity: SourceState.DONE,
        waiting.identity: SourceState.SEEN,
    }
    # Its message named it as it was; the reminder sends another at once.
    assert [topic for topic, _, _ in index.inspect.outbox()] == ["objstore.ingest.logs"]
    assert announcer_of(index, store).remind(900.0) == 1
    index.close()


def test_the_next_backup_copies_what_is_new_and_both_can_be_restored(
    lake: CheckedLake, place: LocalStore, empty: Settings
) -> None:
    first = back_up(lake, place)
    times = {meta.key: meta.modified_ns for meta in place.list("")}
    lake.add("logs", logs_of("later"))
    lake.store.put(KEYS[0], logs_of("written again"))
    said: list[str] = []
    second = back_up(lake, place, said.append)
    assert [one for one in said if one.startswith("copied")] == [
        f"copied 4 of 4 objects, {second.file_bytes - first.file_bytes + len(logs_of('written again'))} of "
        f"{second.file_bytes - first.file_bytes + len(logs_of('written again'))} bytes"
    ]
    assert {key: times[key] for key in times} == {
        meta.key: meta.modified_ns for meta in place.list("") if meta.key in times
    }
    assert list_backups(place).whole == (first.name, second.name)
    run_restore(empty, place, first.name, ignore)
    restored = LocalStore(Path(empty.store.removeprefix("file://")))
    assert restored.get(KEYS[0], max_bytes=1000) == logs_of(KEYS[0])
    third = back_up(lake, place, prune=True)
    assert list_backups(place).whole == (third.name,)
    assert len(list(place.list("objects/"))) == third.files == 10
    assert len(list(place.list("raw/"))) == third.raw_objects == 3


def test_a_segment_that_is_swept_meanwhile_is_not_missed(lake: CheckedLake, place: LocalStore, empty: Settings) -> None:
    old = lake.add("logs", logs_of("merged"))
    swept: list[str] = []

    def sweep(sentence: str) -> None:
        """After the dump, before the copy: another segment takes its place, and its files go."""
        if sentence == "copying objects" and not swept:
            (new,) = lake.make("logs", logs_of("merged", "more"))
            lake.index.commit(Commit((new,), (), (), replaced=(old.id,)))
            swept.extend(meta.key for meta in lake.store.list(old.path.removesuffix("parquet")))
            lake.store.delete(swept)

    made = back_up(lake, place, sweep)
    assert len(swept) == 3
    run_restore(empty, place, None, ignore)
    copy = CheckedLake(Index.open(empty.database_url, connections=2), LocalStore(Path(empty.store[7:])), empty)
    code, said = copy.fsck(deep=True)
    assert (code, said["errors"], made.files) == (0, 0, 10)
    copy.index.close()


def test_a_lake_that_lacks_a_file_has_no_backup_and_one_that_lacks_a_raw_object_has(
    lake: CheckedLake, place: LocalStore
) -> None:
    lake.store.delete([KEYS[1]])
    assert back_up(lake, place).lost == 1
    gone = lake.add("logs", logs_of("gone"))
    lake.store.delete([gone.path])
    with pytest.raises(
        Corrupt, match=f"{gone.path} of a live segment is missing from the store: run `lakerunner fsck`"
    ):
        back_up(lake, place)
    assert [len(names) for names in (list_backups(place).whole, list_backups(place).broken)] == [1, 0]


def test_what_an_interrupted_backup_copied_is_not_copied_again(
    lake: CheckedLake, place: LocalStore, empty: Settings
) -> None:
    def stop(sentence: str) -> None:
        if sentence.startswith("copied"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        back_up(lake, place, stop)
    times = {meta.key: meta.modified_ns for meta in place.list("")}
    assert len(times) == 10
    back_up(lake, place)
    assert times.items() <= {meta.key: meta.modified_ns for meta in place.list("")}.items()
    run_restore(empty, place, None, ignore)
    assert files_of(LocalStore(Path(empty.store[7:]))) == files_of(lake.store)


def test_parts_can_be_left_out(lake: CheckedLake, place: LocalStore, empty: Settings) -> None:
    small = back_up(lake, place, without_raw=True)
    assert (small.files, small.raw_objects) == (7, 2)
    run_restore(empty, place, None, ignore)
    assert listed_anew(empty, LocalStore(Path(empty.store[7:]))) == [KEYS[2]]
    index = back_up(lake, place, index_only=True)
    assert (index.files, index.raw_objects, index.index_only) == (0, 0, True)
    with pytest.raises(UserError, match=f"backup {index.name} contains the index only: name the store"):
        run_restore(replace(empty, store=""), place, index.name, ignore)
    with psycopg.connect(empty.database_url) as connection:
        connection.execute("DROP SCHEMA lrdb CASCADE")
    run_restore(replace(empty, store=lake.settings.store), place, index.name, ignore)
    assert rows_of(empty.database_url) == rows_of(lake.settings.database_url)


def cut(place: LocalStore, key: str) -> None:
    place.put(key, place.get(key, max_bytes=1 << 20)[:-10])


def flip(place: LocalStore, key: str) -> None:
    data = bytearray(place.get(key, max_bytes=1 << 20))
    data[len(data) // 2] ^= 1
    place.put(key, bytes(data))


def test_a_backup_that_is_damaged_is_refused_by_name(lake: CheckedLake, place: LocalStore, empty: Settings) -> None:
    with pytest.raises(NotFound, match="no backup found: there is nothing below backups/"):
        run_restore(empty, place, None, ignore)
    made = back_up(lake, place)
    whole = files_of(place)
    keep = {key: bytes(place.get(key, max_bytes=1 << 20)) for key in whole}
    segment = next(key for key in whole if key.startswith("objects/") and key.endswith(".parquet"))
    raw = next(key for key in whole if key.startswith("raw/"))
    manifest = f"backups/{made.name}/manifest.json"
    newer = json.dumps({**json.loads(keep[manifest]), "migration": "9999_later"}).encode()
    cases: list[tuple[Callable[[], object], type[LakerunnerError], str]] = [
        (lambda: place.delete([manifest]), NotFound, f"backup {made.name} is incomplete: it has no manifest.json"),
        (lambda: cut(place, manifest), Corrupt, "manifest.json is damaged"),
        (lambda: place.put(manifest, b'{"version": 2}'), UserError, "has version 2, this Lakerunner reads version 1"),
        (
            lambda: place.put(manifest, newer),
            UserError,
            "was made by a newer Lakerunner: its index has migration 9999_later",
        ),
        (lambda: flip(place, f"backups/{made.name}/index.dump"), Corrupt, "index.dump is damaged"),
        (lambda: flip(place, f"backups/{made.name}/objects.sqlite"), Corrupt, "objects.sqlite is damaged"),
        (lambda: flip(place, segment), Corrupt, f"{segment} of the backup is damaged"),
        (lambda: cut(place, segment), Corrupt, f"{segment} has .* bytes, not"),
        (lambda: place.delete([raw]), Corrupt, f"{raw} of the backup is missing"),
    ]
    for number, (damage, kind, words) in enumerate(cases):
        damage()
        with pytest.raises(kind, match=words):
            run_restore(replace(empty, store=f"memory://{number}-{made.name}"), place, None, ignore)
        for key, data in keep.items():
            place.put(key, data)
    with pytest.raises(NotFound, match=f"backup 2020 not found; complete backups: {made.name}"):
        run_restore(empty, place, "2020", ignore)
    run_restore(empty, place, None, ignore)  # none of these has left anything in the database


def test_what_is_there_already_is_not_restored_over(lake: CheckedLake, place: LocalStore, empty: Settings) -> None:
    back_up(lake, place)
    used = replace(empty, database_url=lake.settings.database_url)
    with pytest.raises(UserError, match=r"already contains an index \(schema lrdb\): restore into an empty database"):
        run_restore(used, place, None, ignore)
    with pytest.raises(UserError, match=r"store file://.*/lake/store is not empty"):
        run_restore(replace(empty, store=lake.settings.store), place, None, ignore)
    home = lake.settings.home
    with pytest.raises(UserError, match=f"{home} is not empty: restore into a new --home"):
        run_restore(Settings(home=home), place, None, ignore)
    assert not (home / "restoring").exists()


def command(home: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*LAKERUNNER, *arguments, "--home", str(home)],
        capture_output=True,
        text=True,
        timeout=120,
        env=clean_environment(environment),
        check=False,
    )


def test_a_killed_restore_is_done_again_and_no_lake_starts_before(
    lake: CheckedLake, place: LocalStore, tmp_path: Path
) -> None:
    made = back_up(lake, place)
    home, source = tmp_path / "killed", str(tmp_path / "backups")
    killed = command(home, "restore", source, LAKERUNNER_FAILPOINT="before-load")
    assert killed.returncode == -signal.SIGKILL
    server = EmbeddedPostgres.running(home / "restoring" / "postgres")
    assert server  # left running
    refused = command(home, "up", "--listen", "127.0.0.1:0")
    assert refused.returncode == 1, refused.stdout
    assert f"the restore into {home} is not finished: restoring is still in it." in refused.stderr
    assert "run `lakerunner restore` again with the same --home" in refused.stderr
    for opened in (inspected, administered):
        with pytest.raises(UserError, match=f"the restore into {home} is not finished"), opened(Settings(home=home)):
            pass
    assert [entry.name for entry in home.iterdir()] == ["restoring"]
    again = command(home, "restore", source)
    assert again.returncode == 0, again.stderr
    assert f"restored backup {made.name}" in again.stdout
    assert sorted(entry.name for entry in home.iterdir()) == ["postgres", "store"]
    assert files_of(LocalStore(home / "store")) == files_of(lake.store)
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(server)


def test_a_restore_that_is_killed_while_it_moves_says_what_to_remove(
    lake: CheckedLake, place: LocalStore, empty: Settings, tmp_path: Path
) -> None:
    back_up(lake, place)
    home, source = tmp_path / "killed", str(tmp_path / "backups")
    killed = command(home, "restore", source, LAKERUNNER_FAILPOINT="after-move", DATABASE_URL=empty.database_url)
    assert killed.returncode == -signal.SIGKILL
    again = command(home, "restore", source, DATABASE_URL=empty.database_url)
    assert again.returncode == 1
    assert (
        f"{home} contains store beside restoring, left by a restore that was killed: remove "
        "everything in it, and restore again"
    ) in again.stderr
    shutil.rmtree(home)
    again = command(home, "restore", source, DATABASE_URL=empty.database_url)
    assert "or drop schema lrdb if an interrupted restore left it" in again.stderr


def test_two_restores_into_one_home(lake: CheckedLake, place: LocalStore, empty: Settings, tmp_path: Path) -> None:
    back_up(lake, place)
    settings = Settings(home=tmp_path / "one", database_url=empty.database_url)
    refusals: list[str] = []

    def say(_: str) -> None:
        with pytest.raises(UserError) as refusal:
            run_restore(settings, place, None, ignore)
        refusals.append(str(refusal.value))

    run_restore(settings, place, None, say)
    assert set(refusals) == {f"another restore into {settings.home} is running: wait for it, or stop it"}
    assert files_of(LocalStore(settings.home / "store")) == files_of(lake.store)


@pytest.mark.heavy
def test_buckets(lake: CheckedLake, place: LocalStore, empty: Settings, s3_server: S3Server) -> None:
    """To S3 and from there to a lake in S3, whose names and etags are others; then of that lake, to files."""
    backups, bucket = s3_server.address("backups"), s3_server.address("restored")
    made = back_up(lake, open_store(backups))
    remote = replace(empty, store=bucket.url, store_options=dict(bucket.options))
    run_restore(remote, open_store(backups), None, ignore)
    store = open_store(bucket)
    assert {meta.key: meta.size for meta in store.list("")} == {meta.key: meta.size for meta in lake.store.list("")}
    assert listed_anew(remote, store) == [KEYS[2]]
    with pytest.raises(UserError, match=f"store {bucket.url} is not empty"):
        run_restore(replace(remote, database_url=empty.database_url), open_store(backups), None, ignore)
    again = run_backup(remote, place, BackupRequest(), ignore)
    assert (again.bucket, again.files, again.file_bytes) == ("restored", made.files, made.file_bytes)
    assert {meta.key for meta in place.list("raw/")} == {meta.key for meta in open_store(backups).list("raw/")}


def test_a_server_of_another_version(
    lake: CheckedLake, place: LocalStore, empty: Settings, debian_postgres_url: str
) -> None:
    """From PostgreSQL 18 to the system's older one, whose password needs quoting, and back."""
    back_up(lake, place)
    older = replace(empty, database_url=fresh_database(debian_postgres_url))
    made = run_restore(older, place, None, ignore)
    expected = rows_of(lake.settings.database_url, "modified_ns")
    assert rows_of(older.database_url, "modified_ns") == expected
    other = open_store(StoreAddress(f"memory://{uuid4().hex}"))
    again = run_backup(older, other, BackupRequest(), ignore)
    assert (again.files, made.postgres > again.postgres) == (made.files, True)
    run_restore(replace(empty, store=f"memory://{uuid4().hex}"), other, None, ignore)
    drop_database(older.database_url)


def test_a_server_that_is_newer_than_pg_dump_is_named(lake: CheckedLake) -> None:
    database = Database.open(lake.settings.database_url, 2)
    with pytest.raises(UserError, match=r"PostgreSQL at 127.0.0.1:.* has version 99, and pg_dump .* version 18"):
        refuse_newer(database, 99)
    database.close()


def test_a_dump_that_cannot_be_loaded_leaves_nothing_and_says_why(
    lake: CheckedLake, place: LocalStore, empty: Settings, tmp_path: Path
) -> None:
    made = back_up(lake, place)
    with psycopg.connect(empty.database_url) as connection:
        connection.execute("CREATE SCHEMA lrdb")
    dump = tmp_path / "index.dump"
    dump.write_bytes(place.get(f"backups/{made.name}/index.dump", max_bytes=1 << 20))
    index = Index.open(empty.database_url, connections=2)
    with pytest.raises(Unavailable, match=r'psql failed: .*schema "lrdb" already exists'):
        index.restore.load(dump)
    with psycopg.connect(empty.database_url) as connection:
        connection.execute("DROP SCHEMA lrdb")
    index.restore.load(dump)  # and killed then: raw objects are not recorded as the new store has them
    with pytest.raises(UserError, match="was not finished: drop schema"):
        index.migrate()
    with psycopg.connect(empty.database_url) as connection:
        connection.execute("DROP SCHEMA lrdb CASCADE")
    dump.write_bytes(dump.read_bytes()[: made.dump_bytes - 1000])
    with pytest.raises(Unavailable, match="pg_restore failed: pg_restore: error: "):
        index.restore.load(dump)
    index.restore.refuse_used()
    index.close()


def test_a_restore_that_is_killed_while_it_loads_leaves_nothing(
    lake: CheckedLake, empty: Settings, tmp_path: Path
) -> None:
    """psql is held up until its loader is dead, with more to come than a pipe holds: then its input ends."""
    lake.sql(
        "INSERT INTO lrdb.outbox (topic, payload) SELECT 't', repeat('x', 1000)::bytea FROM generate_series(1, 500)"
    )
    with lake.index.snapshot() as snapshot:
        snapshot.dump(tmp_path / "index.dump")
    load = (
        "import sys, pathlib; from lakerunner.index.programs import load_dump; "
        "load_dump(sys.argv[1], pathlib.Path(sys.argv[2]), b'SELECT 1')"
    )
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'psql'"
    with (
        psycopg.connect(empty.database_url) as holder,
        psycopg.connect(empty.database_url, autocommit=True) as connection,
    ):

        def count(condition: str) -> int:
            row = connection.execute(f"{sessions} AND {condition}".encode()).fetchone()
            return int(row[0]) if row else 0

        holder.execute("CREATE SCHEMA lrdb")
        command = [sys.executable, "-c", load, empty.database_url, str(tmp_path / "index.dump")]
        with subprocess.Popen(command) as loader:
            wait_until(lambda: count("wait_event_type = 'Lock'") == 1, "psql at the lock", 60)
            loader.kill()
        holder.rollback()
        wait_until(lambda: count("true") == 0, "the end of psql", 60)
        assert connection.execute("SELECT to_regnamespace('lrdb')").fetchone() == (None,)


def test_the_commands(lake: CheckedLake, empty: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", lake.settings.database_url)
    own = CliRunner().invoke(cli, ["backup", str(lake.store.root), "--store", lake.settings.store])
    assert isinstance(own.exception, UserError)
    assert "is the lake's own store: back up to a different place" in str(own.exception)
    both = CliRunner().invoke(cli, ["backup", "x", "--index-only", "--prune"])
    assert (both.exit_code, "--index-only copies no objects" in both.output) == (2, True)
    done = CliRunner().invoke(cli, ["backup", str(tmp_path / "b"), "--store", lake.settings.store])
    assert done.exit_code == 0
    (name,) = list_backups(LocalStore(tmp_path / "b")).whole
    assert done.output.startswith(f"backup {name}: index of ")
    assert " 7 files of segments (" in done.output
    monkeypatch.setenv("DATABASE_URL", empty.database_url)
    options = ["--home", str(empty.home), "--store", empty.store]
    back = CliRunner().invoke(cli, ["restore", str(tmp_path / "b"), *options])
    assert back.exit_code == 0
    assert back.output.splitlines()[1:] == [
        f"  lakerunner fsck --deep --home {empty.home} --store {empty.store}",
        f"  lakerunner up --home {empty.home} --store {empty.store}",
    ]
