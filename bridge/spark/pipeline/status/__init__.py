"""The state of a pipeline for operators: its status file, its phase, its health and its metrics.

run_state         what a run writes about itself, and its JSON form         pure
run_phase         the phase, from the state of the run and its process      pure
pipeline_health   the answer of ``zkconsumer health --pipeline``            pure, except that it reads the file
pipeline_metrics  the table of metrics, and their text for Prometheus       pure
run_state_file    reads and writes the file; finds out whether a process lives
run_recorder      what a run calls: batches, beats, its end
status_report     everything that ``zkconsumer pipeline status`` shows
"""
