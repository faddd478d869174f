"""Raw objects to segments, on Spark. The only importer of PySpark."""
