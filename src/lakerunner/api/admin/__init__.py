"""What operators ask and change: keys, raw objects, work."""
