-- What push doors keep, so that a request that is sent again counts once (docs/formats/push.md).

-- One row per raw object that a door means to write, made before it is written.
CREATE TABLE lrdb.push_objects (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key       text NOT NULL,
    stored    boolean NOT NULL DEFAULT false,  -- it is there and announced; until then the store knows
    pushed_at timestamptz NOT NULL DEFAULT now()
);

-- Which of them holds a request.
CREATE TABLE lrdb.pushes (
    organization uuid NOT NULL,
    signal       text NOT NULL,
    digest       bytea NOT NULL,
    object       bigint NOT NULL REFERENCES lrdb.push_objects ON DELETE CASCADE,
    PRIMARY KEY (organization, signal, digest)
);
CREATE INDEX pushes_by_object ON lrdb.pushes (object);
