"""The fixtures of every test: one file a concern."""

pytest_plugins = [
    "tests.in_memory_fixtures",
    "tests.zk_procedure_fixtures",
    "tests.sandbox_fixtures",
    "tests.coordinator_group_fixtures",
    "tests.admin_fixtures",
    "tests.secured_zookeeper_fixtures",
    "tests.fake_kerberos",
    "tests.simulation_seeds",
    "tests.spark_session_fixtures",
    "tests.spark_cluster_fixtures",
    "tests.migration.placeholder_fixtures",
]
