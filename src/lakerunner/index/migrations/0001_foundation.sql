-- The index of the lake. Everything is in schema lrdb; times are ns since the epoch unless the name says otherwise.

CREATE TABLE lrdb.organizations (
    id         uuid PRIMARY KEY,
    name       text NOT NULL UNIQUE,
    created_at timestamptz NOT NULL DEFAULT now()
);

-- Keys are shown once, at birth; only their SHA-256 is kept.
CREATE TABLE lrdb.api_keys (
    id           uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    organization uuid NOT NULL REFERENCES lrdb.organizations,
    name         text NOT NULL,
    hash         bytea NOT NULL UNIQUE,
    created_at   timestamptz NOT NULL DEFAULT now(),
    revoked_at   timestamptz,
    UNIQUE (organization, name)
);

-- One row per raw object ever announced. organization is null where the path names none that we know.
CREATE TABLE lrdb.source_objects (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    bucket       text NOT NULL,
    key          text NOT NULL,
    etag         text NOT NULL,
    size         bigint NOT NULL,
    modified_ns  bigint NOT NULL,
    organization uuid REFERENCES lrdb.organizations,
    collector    text,
    signal       text,
    state        text NOT NULL CHECK (state IN ('seen', 'done', 'failed')),
    reason       text,
    seen_at      timestamptz NOT NULL DEFAULT now(),
    ended_at     timestamptz,
    UNIQUE (bucket, key, etag),
    CHECK ((state = 'failed') = (reason IS NOT NULL))
);
CREATE INDEX source_objects_unfinished ON lrdb.source_objects (state, id) WHERE state <> 'done';

-- The sets of columns that segments have; most segments share theirs with many others.
CREATE TABLE lrdb.column_sets (
    id      bigint PRIMARY KEY,          -- digest of the columns
    columns json NOT NULL                -- [[name, type], ...]; json, since a name may hold \u0000, which jsonb refuses
);

CREATE TABLE lrdb.segments (
    id           uuid PRIMARY KEY,
    organization uuid NOT NULL REFERENCES lrdb.organizations,
    collector    text NOT NULL,
    signal       text NOT NULL,
    start_ns     bigint NOT NULL,
    end_ns       bigint NOT NULL,        -- exclusive
    frequency_ms integer NOT NULL,       -- 0: raw rows
    level        smallint NOT NULL,
    sort_version smallint NOT NULL,
    rows         bigint NOT NULL,
    bytes        bigint NOT NULL,
    column_set   bigint NOT NULL REFERENCES lrdb.column_sets,
    statistics   json NOT NULL,
    fingerprints bigint[] NOT NULL,
    state        text NOT NULL DEFAULT 'live' CHECK (state IN ('live', 'replaced')),
    created_at   timestamptz NOT NULL DEFAULT now(),
    replaced_at  timestamptz,
    CHECK (start_ns < end_ns)
);
-- Most questions are about recent time: few segments end after its start. The range index is for those about the past,
-- where the planner cannot tell from the two ends that few segments lie across a short range.
CREATE INDEX segments_by_time ON lrdb.segments (organization, signal, frequency_ms, end_ns, start_ns)
    WHERE state = 'live';
CREATE INDEX segments_by_range ON lrdb.segments USING gist (int8range(start_ns, end_ns)) WHERE state = 'live';
CREATE INDEX segments_by_fingerprint ON lrdb.segments USING gin (fingerprints) WHERE state = 'live';

-- What a commit left to be said. The relay publishes it at least once, then deletes it.
CREATE TABLE lrdb.outbox (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topic   text NOT NULL,
    payload bytea NOT NULL
);

-- The bus on PostgreSQL. "offset" grows in commit order inside a topic: publishers take a lock per topic.
CREATE TABLE lrdb.bus_messages (
    "offset"     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topic        text NOT NULL,
    payload      bytea NOT NULL,
    published_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX bus_messages_by_topic ON lrdb.bus_messages (topic, "offset");

-- Everything up to position has been handed out to the group.
CREATE TABLE lrdb.bus_cursors (
    "group"  text NOT NULL,
    topic    text NOT NULL,
    position bigint NOT NULL,
    PRIMARY KEY ("group", topic)
);

-- Handed out and not finished. The holder is a backend of this server: when it is gone, the claim is free.
CREATE TABLE lrdb.bus_claims (
    "group"       text NOT NULL,
    topic         text NOT NULL,
    "offset"      bigint NOT NULL,
    holder_pid    integer NOT NULL,
    holder_start  timestamptz NOT NULL,
    PRIMARY KEY ("group", topic, "offset")
);
