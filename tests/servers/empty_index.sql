-- Make an index as it was when it was migrated. A table without rows is left alone: a truncation writes new files.
DO $$
DECLARE
    name regclass;
    filled boolean;
BEGIN
    PERFORM pg_terminate_backend(pid, 60000) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend';
    FOR name IN SELECT oid FROM pg_class
        WHERE relnamespace = 'lrdb'::regnamespace AND relkind = 'r' AND relname <> 'migrations'
    LOOP
        EXECUTE format('SELECT EXISTS (SELECT FROM %s)', name) INTO filled;
        IF filled THEN
            EXECUTE format('TRUNCATE %s CASCADE', name);
        END IF;
    END LOOP;
    PERFORM setval(format('%I.%I', schemaname, sequencename)::regclass, start_value, false) FROM pg_sequences
        WHERE schemaname = 'lrdb' AND last_value IS NOT NULL;
END $$
