"""Migrations: index/migrations/*.sql, applied in the order of their names, each once.

What always holds: they run in one transaction under one advisory lock, so of several processes that start at once one
applies them and the others find them applied; a failure leaves the database unchanged. The applied migrations must be
the first ones of the code, with the same text: a newer database, or an edited migration, is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files

from lakerunner.index.database import Database, Transaction
from lakerunner.model.errors import UserError

RESTORING = "restoring"  # recorded like a migration while a restore is incomplete (index/snapshot.py)


@dataclass(frozen=True)
class Migration:
    name: str
    text: str

    @property
    def checksum(self) -> str:
        return sha256(self.text.encode()).hexdigest()


def load_migrations() -> list[Migration]:
    """Return the migrations in order. Line endings do not count."""
    found = [
        Migration(file.name.removesuffix(".sql"), file.read_text(encoding="utf-8"))
        for file in (files("lakerunner.index") / "migrations").iterdir()
        if file.name.endswith(".sql")
    ]
    return sorted(found, key=lambda migration: migration.name)


def migrate(database: Database, migrations: Sequence[Migration]) -> list[str]:
    """Apply what is missing; return the names of those applied now."""
    with database.transaction() as transaction:
        transaction.rows("migrations.lock")
        if not transaction.rows("migrations.exists")[0][0]:
            transaction.run("migrations.create")
        applied = transaction.rows("migrations.applied")
        _refuse_strangers(applied, migrations, database.address)
        pending = migrations[len(applied) :]
        for migration in pending:
            _apply(transaction, migration)
    return [migration.name for migration in pending]


def _apply(transaction: Transaction, migration: Migration) -> None:
    transaction.connection.execute(migration.text.encode())
    transaction.run("migrations.record", {"name": migration.name, "checksum": migration.checksum})


def _refuse_strangers(applied: Sequence[tuple[str, str]], migrations: Sequence[Migration], address: str) -> None:
    known = {migration.name for migration in migrations}
    for place, (name, checksum) in enumerate(applied):
        if name == RESTORING:
            raise UserError(
                f"a restore into the database at {address} was not finished: drop schema lrdb, and "
                "run `lakerunner restore` again"
            )
        if name not in known:
            raise UserError(
                f"the database at {address} is newer than this Lakerunner: it has migration {name}. "
                "Run the newer version, or restore a backup from before its upgrade"
            )
        if migrations[place].name != name:
            raise UserError(
                f"the database at {address} has migration {name} but not {migrations[place].name} "
                "before it: it was migrated by a different build of Lakerunner. Use that one"
            )
        if migrations[place].checksum != checksum:
            raise UserError(
                f"migration {name} differs from the one that the database at {address} was created "
                "with. Never edit a migration: restore its text and add a new one"
            )
