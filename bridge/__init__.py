"""The modern side: coordinator client, embedded broker, migration, Spark.  Imports zkconsumer, never the other way round."""
