"""What a program reports about itself: counters, metrics, health."""
