"""Settings come from file, environment and command line, in that order, and a typo never becomes a default."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakerunner.model.errors import UserError
from lakerunner.settings import Settings, describe, load_settings


def test_later_sources_win(tmp_path: Path) -> None:
    config = tmp_path / "lakerunner.toml"
    config.write_text('box_max_objects = 5\nlister_seconds = 2\n[store_options]\nendpoint = "e"\n')
    environment = {
        "LAKERUNNER_CONFIG": str(config),
        "LAKERUNNER_LISTER_SECONDS": "3",
        "LAKERUNNER_HOME": "here",
        "DATABASE_URL": "postgresql://db/lake",
        "PATH": "/bin",
    }
    settings = load_settings(environment, {"home": "there", "listen": None})
    assert settings.box_max_objects == 5
    assert settings.lister_seconds == 3.0
    assert settings.home == Path("there")
    assert settings.database_url == "postgresql://db/lake"
    assert settings.store_options == {"endpoint": "e"}
    assert settings.listen == Settings().listen


def test_pairs_from_the_environment() -> None:
    settings = load_settings({"LAKERUNNER_STORE_OPTIONS": "endpoint=http://h:1,key=a=b"})
    assert settings.store_options == {"endpoint": "http://h:1", "key": "a=b"}


def test_flags_are_true_or_false(tmp_path: Path) -> None:
    config = tmp_path / "lakerunner.toml"
    config.write_text("promql_delayed_name_removal = true\n")
    from_file = {"LAKERUNNER_CONFIG": str(config)}
    assert load_settings(from_file).promql_delayed_name_removal is True
    name = "LAKERUNNER_PROMQL_DELAYED_NAME_REMOVAL"
    assert load_settings({**from_file, name: "False"}).promql_delayed_name_removal is False
    assert load_settings({name: "true"}).promql_delayed_name_removal is True


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"LAKERUNNER_STOER": "x"}, "unknown setting LAKERUNNER_STOER: did you mean store?"),
        ({"LAKERUNNER_BOX_MAX_OBJECTS": "many"}, "setting box_max_objects: 'many' is not int"),
        ({"LAKERUNNER_PROMQL_DELAYED_NAME_REMOVAL": "on"}, "setting promql_delayed_name_removal: 'on' is not bool"),
        ({"LAKERUNNER_CONFIG": "absent.toml"}, "config file absent.toml cannot be read"),
    ],
)
def test_what_is_wrong_is_named(environment: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message.replace("?", r"\?")):
        load_settings(environment)


def test_a_store_is_below_home_unless_told() -> None:
    assert load_settings({}, {"home": "/data"}).store_url == "file:///data/store"
    assert load_settings({}, {"store": "s3://b/p"}).store_url == "s3://b/p"


def test_every_setting_has_its_reason() -> None:
    assert all(why for _, _, why in describe())
    assert len(describe()) <= 80
