-- What a segment was merged from: `lakerunner fsck` proves by it that no row stands in two live segments. Null: it was
-- not made of segments, or before there was this column.
ALTER TABLE lrdb.segments ADD inputs uuid[];
