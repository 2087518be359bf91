"""How the program is seen from outside: counters, metrics, health."""
