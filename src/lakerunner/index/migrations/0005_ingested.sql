-- The order in which segments came in: of two samples of one series and time the one of the later segment counts. A
-- segment that replaces others may be given a place of theirs. Those that are there are told apart by their birth.
CREATE SEQUENCE lrdb.segments_ingested AS bigint;
ALTER TABLE lrdb.segments ADD ingested bigint;
UPDATE lrdb.segments AS s SET ingested = o.place
FROM (SELECT id, row_number() OVER (ORDER BY created_at, id) AS place FROM lrdb.segments) AS o
WHERE s.id = o.id;
SELECT setval('lrdb.segments_ingested', (SELECT count(*) + 1 FROM lrdb.segments), false);
ALTER TABLE lrdb.segments
    ALTER ingested SET DEFAULT nextval('lrdb.segments_ingested'),
    ALTER ingested SET NOT NULL;
