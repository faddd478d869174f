-- How the lake tends itself: rollups, compactions and what the sweeper takes (docs/formats/tending.md).

-- rolled: the next tier's windows have all rows of this segment; a query reads them only where that is so.
-- aside: why the segment is no longer merged with others; null: it is.
-- expired: past its retention; like replaced, its files go when the grace time ends.
ALTER TABLE lrdb.segments
    ADD rolled boolean NOT NULL DEFAULT false,
    ADD aside  text,
    DROP CONSTRAINT segments_state_check,
    ADD CONSTRAINT segments_state_check CHECK (state IN ('live', 'replaced', 'expired'));
CREATE INDEX segments_unrolled ON lrdb.segments (organization, frequency_ms, end_ns, start_ns)
    WHERE state = 'live' AND signal = 'metrics' AND NOT rolled;
CREATE INDEX segments_ended ON lrdb.segments (replaced_at) WHERE state <> 'live';

-- Boxes of compaction and rollup that failed: tried again at next_at, or set aside with the reason.
CREATE TABLE lrdb.failed_work (
    topic        text NOT NULL,
    digest       bytea NOT NULL,              -- of the payload
    payload      bytea NOT NULL,              -- the box as it stands on the bus
    organization uuid NOT NULL REFERENCES lrdb.organizations,
    attempts     integer NOT NULL,
    reason       text NOT NULL,
    state        text NOT NULL CHECK (state IN ('waiting', 'aside')),
    first_at     timestamptz NOT NULL DEFAULT now(),
    next_at      timestamptz NOT NULL,
    PRIMARY KEY (topic, digest)
);

-- How long an organization keeps what; without a row the settings say it. seconds null: for ever.
CREATE TABLE lrdb.retention (
    organization uuid NOT NULL REFERENCES lrdb.organizations,
    signal       text NOT NULL,
    frequency_ms integer NOT NULL DEFAULT 0,
    seconds      bigint CHECK (seconds > 0),
    PRIMARY KEY (organization, signal, frequency_ms)
);
