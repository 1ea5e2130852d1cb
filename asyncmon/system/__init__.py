"""The base of all rooms: time, cancellation, threads, locks, files, differences between systems."""
