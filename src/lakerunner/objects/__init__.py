"""Object storage behind one small Protocol: memory, local files, S3, GCS and Azure by URL."""
