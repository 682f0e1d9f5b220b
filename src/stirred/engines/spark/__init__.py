"""Bulk work on an Apache Spark cluster (the extra `spark`): PySpark 4, Java 17."""
