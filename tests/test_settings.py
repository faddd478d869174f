"""Settings come from file, environment and command line, in that order, and a typo never becomes a default."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakerunner.model.setting_value import WrongSettings, mask_secrets
from lakerunner.settings import Settings, describe_setting, load_settings, read_settings, setting_names


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


WRONG = {
    "LAKERUNNER_CONFIG": "absent.toml",
    "LAKERUNNER_STOER": "x",
    "LAKERUNNER_BOX_MAX_OBJECTS": "many",
    "LAKERUNNER_QUERY_MEMORY": "2 GBB",
    "LAKERUNNER_LOG_LEVEL": "infoo",
    "LAKERUNNER_LISTEN": "7080",
    "LAKERUNNER_RETENTION": "logs=30 days",
    "LAKERUNNER_STORE_OPTIONS": "endpoint",
    "LAKERUNNER_SWEEP_SECONDS": "0",
    "LAKERUNNER_SPARK_DRIVER_MEMORY": "1 GB",
    "LAKERUNNER_SPARK_MASTER": "lokal[*]",
    "LAKERUNNER_OTLP_GRPC_PORT": "70000",
    "LAKERUNNER_ROUTES": "[",
    "LAKERUNNER_QUERY_SPARK": "yes",
    "LAKERUNNER_PROMQL_DELAYED_NAME_REMOVAL": "on",
    "LAKERUNNER_UNIT_MAX_BYTES": "2000",
    "LAKERUNNER_CACHE_MAX_BYTES": "1000",
    "LAKERUNNER_WORKER_KEYS": "hunter2",
    "DATABASE_URL": "mysql://lake:hunter2@db/lake",
}
SAID = """\
18 settings are invalid:
  config = 'absent.toml' ($LAKERUNNER_CONFIG) cannot be read: No such file or directory
  database_url = 'mysql://lake:****@db/lake' ($DATABASE_URL) is not a PostgreSQL URL: write \
postgresql://user:password@host:port/database
  stoer = 'x' ($LAKERUNNER_STOER) is unknown: did you mean store?
  box_max_objects = 'many' ($LAKERUNNER_BOX_MAX_OBJECTS) is not a whole number
  query_memory = '2 GBB' ($LAKERUNNER_QUERY_MEMORY) is not a size of memory: write 500MB, 2GB, 1GiB or 50%
  log_level = 'infoo' ($LAKERUNNER_LOG_LEVEL) is unknown: write debug, info, warning or error
  listen = '7080' ($LAKERUNNER_LISTEN) is not an address: write host:port, for example 127.0.0.1:7080
  retention = 'logs=30 days' ($LAKERUNNER_RETENTION) cannot be used: retention logs=30 days is not a duration: \
write 12h, 30d, 4w, 2y or forever
  store_options = 'endpoint' ($LAKERUNNER_STORE_OPTIONS) is not a list of pairs: write name=value,name=value
  sweep_seconds = '0' ($LAKERUNNER_SWEEP_SECONDS) must be greater than 0
  spark_driver_memory = '1 GB' ($LAKERUNNER_SPARK_DRIVER_MEMORY) is not a size of a Java heap: write 512m or 2g
  spark_master = 'lokal[*]' ($LAKERUNNER_SPARK_MASTER) is not a Spark master: write local[*], local-cluster[...], \
spark://host:port, k8s://... or yarn
  otlp_grpc_port = '70000' ($LAKERUNNER_OTLP_GRPC_PORT) is not a port: write 1 to 65535, or 0 for a free one
  routes = '[' ($LAKERUNNER_ROUTES) cannot be used: not JSON: Expecting value: line 1 column 2 (char 1)
  query_spark = 'yes' ($LAKERUNNER_QUERY_SPARK) is unknown: write on or off
  promql_delayed_name_removal = 'on' ($LAKERUNNER_PROMQL_DELAYED_NAME_REMOVAL) is not true or false
  worker_keys = '****' ($LAKERUNNER_WORKER_KEYS) is unknown: did you mean worker_key?
  unit_max_bytes = '2000' ($LAKERUNNER_UNIT_MAX_BYTES) is more than cache_max_bytes, which is 1000: lower it, or raise \
cache_max_bytes"""


def test_all_that_is_wrong_is_reported_at_once_with_value_source_and_remedy() -> None:
    with pytest.raises(WrongSettings) as raised:
        load_settings(WRONG)
    assert str(raised.value).replace("environment variable ", "$") == SAID
    assert raised.value.exit_code == 2


def test_a_reading_keeps_what_is_right_and_says_where_it_comes_from(tmp_path: Path) -> None:
    config = tmp_path / "lakerunner.toml"
    config.write_text('box_max_objects = 5\nlister_seconds = 2\nlog_level = 3\nstoer = "x"\n')
    environment = {"LAKERUNNER_CONFIG": str(config), "LAKERUNNER_LISTER_SECONDS": "3", "LAKERUNNER_API_KEY": "lrk_a"}
    reading = read_settings(environment, {"home": "there"})
    assert (reading.settings.box_max_objects, reading.settings.lister_seconds) == (5, 3.0)
    assert {name: reading.source(name) for name in ("box_max_objects", "lister_seconds", "home", "bus")} == {
        "box_max_objects": f"config file {config}",
        "lister_seconds": "environment variable LAKERUNNER_LISTER_SECONDS",
        "home": "option --home",
        "bus": "default",
    }
    assert [str(problem) for problem in reading.problems] == [
        f"log_level = '3' (config file {config}) is not text",
        f"stoer = 'x' (config file {config}) is unknown: did you mean store?",
    ]


def test_flags_are_true_or_false(tmp_path: Path) -> None:
    config = tmp_path / "lakerunner.toml"
    config.write_text("promql_delayed_name_removal = true\n")
    from_file = {"LAKERUNNER_CONFIG": str(config)}
    assert load_settings(from_file).promql_delayed_name_removal is True
    name = "LAKERUNNER_PROMQL_DELAYED_NAME_REMOVAL"
    assert load_settings({**from_file, name: "False"}).promql_delayed_name_removal is False
    assert load_settings({name: "true"}).promql_delayed_name_removal is True


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("database_url", "postgresql://lake:s3cr/et@db:5432/lake", "postgresql://lake:****@db:5432/lake"),
        ("database_url", "host=db password='s e c' user=lake", "host=db password=**** user=lake"),
        ("database_url", "postgresql://db/lake?password=s3cret&user=a", "postgresql://db/lake?password=****&user=a"),
        ("worker_key", "s3cret", "****"),
        ("worker_key", "", ""),
        ("key_cache_seconds", 30.0, "30.0"),
        (
            "store_options",
            {"endpoint": "http://u:p@h", "secret_access_key": "s3cret", "sas_token": "s3cret", "region": "eu"},
            "endpoint=http://u:****@h,secret_access_key=****,sas_token=****,region=eu",
        ),
    ],
)
def test_secrets_are_masked(name: str, value: object, text: str) -> None:
    assert mask_secrets(name, value) == text


def test_a_store_is_below_home_unless_told() -> None:
    assert load_settings({}, {"home": "/data"}).store_url == "file:///data/store"
    assert load_settings({}, {"store": "s3://b/p"}).store_url == "s3://b/p"


def test_every_setting_has_a_description_in_plain_words() -> None:
    for name in setting_names():
        assert describe_setting(name)[0].isupper(), name
        assert describe_setting(name).endswith((".", ").")), name
    assert len(setting_names()) <= 87
