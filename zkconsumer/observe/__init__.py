"""How the program is seen from outside: log lines and counters."""
