-- Which segments of logs were ingested last, for those who follow new lines: by their numbers, of which a commit takes
-- one for each segment. Replaced ones count: a merge may come between a commit and the look at it.
CREATE INDEX segments_by_commit ON lrdb.segments (ingested)
    WHERE signal = 'logs' AND frequency_ms = 0 AND level = 0;
