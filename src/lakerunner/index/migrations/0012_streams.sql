-- What becomes a label of an organization's log streams, as StreamRules.to_json writes it; null: as in Loki.
ALTER TABLE lrdb.organizations ADD stream_rules jsonb;
