"""Keys remembered for a while: on a clock of the test's own, and on a PostgreSQL that goes away."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakerunner.api import key_cache as key_cache_module
from lakerunner.api.key_cache import Ages, GuessLimiter, KeyCache
from lakerunner.index.api_keys import KeyGrant, digest
from lakerunner.index.embedded import EmbeddedPostgres
from lakerunner.index.index import Index
from lakerunner.model.errors import Unavailable
from lakerunner.model.organization import Caller, Role
from suites.pushed import ACME, OTHER

READ = frozenset({Role.READ})
AGES = Ages(fresh=30.0, away=600.0)


class Directory:
    """Keys by secret, and how often it was asked; away while `away` is set."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.asked = 0
        self.away = False
        self.keys: dict[bytes, KeyGrant] = {}
        freely = GuessLimiter(lambda: self.now, rate=1e9, all_rate=1e9)  # tests/api/test_guesses.py has their limits
        self.cache = KeyCache(self.find, AGES, lambda: self.now, freely)

    def add(self, secret: str, seconds: float | None = None, organization: object = ACME) -> Caller:
        caller = Caller(organization, secret.removeprefix("lrk_"), READ)  # type: ignore[arg-type]
        self.keys[digest(secret)] = KeyGrant(caller, seconds)
        return caller

    def find(self, hashed: bytes) -> KeyGrant | None:
        self.asked += 1
        if self.away:
            raise Unavailable("PostgreSQL does not answer")
        return self.keys.get(hashed)


@pytest.fixture
def directory() -> Directory:
    return Directory()


def test_an_answer_is_asked_for_once_while_it_is_fresh(directory: Directory) -> None:
    caller = directory.add("lrk_a")
    for _ in range(3):
        assert directory.cache.caller("lrk_a") == caller
    directory.now += 29.9
    assert directory.cache.caller("lrk_a") == caller
    assert directory.asked == 1
    directory.now += 0.1
    assert directory.cache.caller("lrk_a") == caller
    assert directory.asked == 2


def test_a_revoked_key_dies_when_its_answer_is_no_longer_fresh(directory: Directory) -> None:
    caller = directory.add("lrk_a")
    assert directory.cache.caller("lrk_a") == caller
    directory.keys.clear()
    directory.now += 29.9
    assert directory.cache.caller("lrk_a") == caller
    directory.now += 0.1
    assert directory.cache.caller("lrk_a") is None


def test_a_secret_with_an_end_dies_at_it_even_while_the_index_is_away(directory: Directory) -> None:
    caller = directory.add("lrk_old", seconds=10.0)
    assert directory.cache.caller("lrk_old") == caller
    directory.away = True
    directory.now += 9.9
    assert directory.cache.caller("lrk_old") == caller
    directory.now += 0.1
    with pytest.raises(Unavailable):
        directory.cache.caller("lrk_old")


def test_while_the_index_is_away_known_keys_are_good_for_a_longer_time(directory: Directory) -> None:
    caller = directory.add("lrk_a")
    assert directory.cache.caller("lrk_a") == caller
    directory.away = True
    directory.now += 599.9
    assert directory.cache.caller("lrk_a") == caller
    directory.now += 0.1
    with pytest.raises(Unavailable, match="does not answer"):
        directory.cache.caller("lrk_a")
    with pytest.raises(Unavailable, match="does not answer"):
        directory.cache.caller("lrk_never_seen")


def test_an_index_that_is_away_is_asked_now_and_then(directory: Directory) -> None:
    caller = directory.add("lrk_a")
    directory.cache.caller("lrk_a")
    directory.away = True
    directory.now += 30
    before = directory.asked
    for _ in range(10):
        assert directory.cache.caller("lrk_a") == caller
        with pytest.raises(Unavailable):
            directory.cache.caller("lrk_guess")
    assert directory.asked == before + 1
    directory.now += 5.1
    directory.away = False
    directory.keys.clear()
    assert directory.cache.caller("lrk_a") is None
    assert directory.asked == before + 2


def test_guesses_are_remembered_briefly_and_push_out_no_caller(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_cache_module, "UNKNOWN_MAX", 3)
    monkeypatch.setattr(key_cache_module, "KNOWN_MAX", 2)
    callers = [directory.add("lrk_a"), directory.add("lrk_b")]
    assert [directory.cache.caller(secret) for secret in ("lrk_a", "lrk_b")] == callers
    for number in range(4):
        assert directory.cache.caller(f"guess {number}") is None
    directory.asked = 0
    assert [directory.cache.caller(f"guess {number}") for number in (1, 2, 3)] == [None] * 3
    assert [directory.cache.caller(secret) for secret in ("lrk_a", "lrk_b")] == callers
    assert directory.asked == 0
    assert directory.cache.caller("guess 0") is None  # one past the bound: it was forgotten
    assert directory.asked == 1
    directory.add("guess 0")
    directory.now += 5
    assert directory.cache.caller("guess 0") is not None
    directory.asked = 0
    assert directory.cache.caller("lrk_a") == callers[0]  # and so was the oldest of three callers
    assert directory.asked == 1


def test_changed_keys_are_forgotten_for_their_organization_only(directory: Directory) -> None:
    ours, theirs = directory.add("lrk_ours"), directory.add("lrk_theirs", organization=OTHER)
    assert directory.cache.caller("lrk_ours") == ours
    assert directory.cache.caller("lrk_theirs") == theirs
    directory.keys.clear()
    directory.cache.forget(ACME.id)
    assert directory.cache.caller("lrk_ours") is None
    assert directory.cache.caller("lrk_theirs") == theirs


def test_an_answer_that_was_under_way_when_keys_changed_is_not_remembered() -> None:
    asked, answer = threading.Event(), threading.Event()
    known = [KeyGrant(Caller(ACME, "a", READ))]

    def find(_hashed: bytes) -> KeyGrant | None:
        found = known[0] if known else None
        asked.set()
        assert answer.wait(10)
        return found

    cache = KeyCache(find, AGES, lambda: 0.0)
    with ThreadPoolExecutor(1) as threads:
        before = threads.submit(cache.caller, "lrk_a")
        assert asked.wait(10)
        known.clear()
        cache.forget(ACME.id)
        answer.set()
        assert before.result(10) is not None
        assert cache.caller("lrk_a") is None


def test_one_request_asks_for_all_who_have_an_answer_that_was_good() -> None:
    """So that an index that hangs does not hold up every request."""
    caller, now, asked, answer = Caller(ACME, "a", READ), [0.0], threading.Event(), threading.Event()
    answers = [KeyGrant(caller)]

    def find(_hashed: bytes) -> KeyGrant | None:
        if answers:
            return answers.pop()
        asked.set()
        assert answer.wait(10)
        return None

    cache = KeyCache(find, AGES, lambda: now[0])
    assert cache.caller("lrk_a") == caller
    now[0] += AGES.fresh
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(cache.caller, "lrk_a")
        assert asked.wait(10)
        assert [cache.caller("lrk_a") for _ in range(5)] == [caller] * 5
        answer.set()
        assert first.result(10) is None
        assert cache.caller("lrk_a") is None


def test_many_threads_get_the_right_answers_within_the_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_cache_module, "KNOWN_MAX", 5)
    monkeypatch.setattr(key_cache_module, "UNKNOWN_MAX", 5)
    directory = Directory()
    callers = {f"lrk_{number}": directory.add(f"lrk_{number}") for number in range(20)}

    def ask(seed: int) -> bool:
        wanted = [f"lrk_{(seed * step) % 40}" for step in range(200)]
        if seed % 4 == 0:
            directory.cache.forget(ACME.id)
        return all(directory.cache.caller(secret) == callers.get(secret) for secret in wanted)

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(ask, range(1, 33)))
    directory.asked = 0
    for secret in callers:
        directory.cache.caller(secret)
    assert directory.asked >= 15  # at most five were remembered


def test_no_secret_is_held(directory: Directory) -> None:
    directory.add("lrk_a-secret")
    directory.cache.caller("lrk_a-secret")
    directory.cache.caller("lrk_b-secret")
    held = repr({**vars(directory.cache), "_find": None, "_guesses": None})
    assert digest("lrk_a-secret").__repr__() in held
    assert "lrk_" not in held


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.sampled_from("abc")),
        st.tuples(st.just("revoke"), st.sampled_from("abc")),
        st.tuples(st.just("wait"), st.sampled_from([0.5, 4.9, 29.0, 31.0, 599.0])),
        st.tuples(st.just("away"), st.booleans()),
    ),
    max_size=40,
)


@settings(max_examples=200)
@given(STEPS)
def test_whatever_happens_a_key_outlives_its_revocation_by_the_ages_only(steps: list[tuple[str, str | float]]) -> None:
    directory, revoked_at, seen_away = Directory(), dict[str, float](), False
    callers = {name: directory.add(name) for name in "abc"}
    for verb, value in steps:
        if verb == "wait":
            directory.now += float(value)
        elif verb == "away":
            directory.away = bool(value)
            seen_away = seen_away or directory.away
        elif verb == "revoke":
            if directory.keys.pop(digest(str(value)), None):
                revoked_at[str(value)] = directory.now
        else:
            name = str(value)
            try:
                found = directory.cache.caller(name)
            except Unavailable:
                assert seen_away
                continue
            assert found in (callers[name], None)
            dead = directory.now - revoked_at.get(name, directory.now)
            if found is None:
                assert name in revoked_at
            elif name in revoked_at:
                assert dead < (AGES.away if seen_away else AGES.fresh)


@pytest.mark.slow
def test_with_postgresql_stopped_and_back(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path / "postgres")
    index = Index.open(server.start())
    now = [0.0]
    try:
        index.migrate()
        index.organizations.create(ACME)
        secret = index.keys.create(ACME.id, "a", READ)
        cache = KeyCache(index.keys.find, AGES, lambda: now[0])
        caller = Caller(ACME, "a", READ)
        assert cache.caller(secret) == caller
        server.stop()
        now[0] += 60
        assert cache.caller(secret) == caller
        with pytest.raises(Unavailable, match="PostgreSQL"):
            cache.caller("lrk_guess")
    finally:
        index.close()
        server.stop()
    index = Index.open(server.start())
    try:
        back = KeyCache(index.keys.find, AGES, lambda: now[0])
        assert back.caller(secret) == caller
        new = index.keys.rotate(ACME.id, "a", timedelta(0))
        now[0] += 30
        assert back.caller(secret) is None
        assert back.caller(new) == caller
    finally:
        index.close()
        server.stop()
