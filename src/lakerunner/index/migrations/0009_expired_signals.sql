-- Logs and traces expire as metrics do: whoever asks for a time before that is told so (docs/formats/sql_api.md).
ALTER TABLE lrdb.expired ADD COLUMN signal text NOT NULL DEFAULT 'metrics';
ALTER TABLE lrdb.expired ALTER COLUMN signal DROP DEFAULT;
ALTER TABLE lrdb.expired DROP CONSTRAINT expired_pkey;
ALTER TABLE lrdb.expired ADD PRIMARY KEY (organization, signal, collector, frequency_ms);
