"""Make segments of raw objects, merge them and roll them up, on Spark. Only this package imports PySpark."""
