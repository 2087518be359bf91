"""The shell: one control thread takes events and timers in, and performs the core's commands."""
