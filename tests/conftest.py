"""The fixtures of every test: one file a concern."""

pytest_plugins = [
    "tests.fix_world",
    "tests.fix_procedures",
    "tests.fix_sandbox",
    "tests.fix_modern",
    "tests.fix_admin",
    "tests.fix_secured_zookeeper",
    "tests.fix_kerberos",
    "tests.fix_seeds",
    "tests.fix_spark",
    "tests.fix_spark_clusters",
    "tests.migration.fix_seat",
]
