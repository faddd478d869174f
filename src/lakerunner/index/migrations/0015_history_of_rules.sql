-- From when on a rule covers stored segments too (docs/formats/backfill_of_rules.md). null: only what is ingested.
ALTER TABLE lrdb.metric_rules ADD since_ns bigint;
