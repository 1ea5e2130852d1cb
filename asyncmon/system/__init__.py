"""The lowest layer: time, cancellation, threads, locks, files, differences between systems."""
