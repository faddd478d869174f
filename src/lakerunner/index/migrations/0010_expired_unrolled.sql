-- Metrics that expired before they were rolled up: no window has their rows, and a query that tiers serve is told so
-- (docs/formats/tiers.md). One row for all of a collector's segments of one frequency that begin in the same hour.
CREATE TABLE lrdb.expired_unrolled (
    organization uuid NOT NULL REFERENCES lrdb.organizations,
    collector    text NOT NULL,
    frequency_ms integer NOT NULL,
    hour_ns      bigint NOT NULL,
    start_ns     bigint NOT NULL,
    end_ns       bigint NOT NULL,
    fingerprints bigint[] NOT NULL,
    PRIMARY KEY (organization, collector, frequency_ms, hour_ns)
);
