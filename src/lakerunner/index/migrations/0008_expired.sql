-- Up to when segments of a collector's metrics have expired, now or before: a window that begins before that may have
-- lost rows, so it is not made anew where it is there (docs/formats/rollups.md).
CREATE TABLE lrdb.expired (
    organization uuid NOT NULL REFERENCES lrdb.organizations,
    collector    text NOT NULL,
    frequency_ms integer NOT NULL,
    before_ns    bigint NOT NULL,
    PRIMARY KEY (organization, collector, frequency_ms)
);
