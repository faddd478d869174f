-- How often a raw object was begun, in a job of so many objects, without an end: its worker, or the whole process, died.
ALTER TABLE lrdb.source_objects
    ADD COLUMN attempts smallint NOT NULL DEFAULT 0,
    ADD COLUMN company  integer NOT NULL DEFAULT 0;
