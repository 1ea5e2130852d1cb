"""Why rows missed their limits in the run of ``docs/benchmarks.md``, by how their names begin."""

REASONS = {
    "above the raw run": "A run with hooks is six coroutines, a lock and a context, about 6 µs, and a "
    "hook that fetches adds 1.4 µs, of which 0.4 µs are its own `SessionRunArgs`. Step calls compiled "
    "for hooks that repeat their requests were tried in five forms, and won 1.3 of 24 µs at most. The "
    "limits were set on a processor on which TensorFlow's hooks took twice as long.",
    "mlp": "Small: some 20 calls of numpy, one after another, with 30 µs around them. Large: products "
    "of matrices take most of the step, and those of TensorFlow (oneDNN) are faster on this processor "
    "than those of numpy (OpenBLAS). `SessionConfig(kernels='torch')` has the former.",
    "conv": "OpenBLAS multiplies 64 channels at 115 GFLOP/s here, less than oneDNN convolves: "
    '`SessionConfig(kernels="torch")` has the latter. Tried: copies of windows by row only, gradients '
    "of images as convolutions, one product for all taps; each within 9 % of the step.",
    "torch-": "Products and convolutions are those of oneDNN, as in TensorFlow. Updates and element-"
    "wise functions are numpy's, a pass over memory each, where TensorFlow has one for several.",
    "peek": "p99: a peek waits for a kernel of a step that has the core.",
    "queue": "Two runs of 9 µs; TensorFlow's, of 120 µs here, took 300 µs where the limit was set.",
    "start_save": "1.2 to 2.1 ms from run to run; 5.4 ms of the buffer of 1 GB, under load; why is "
    "not known.",
    "worst / median, a save": "As without saves: other programs of the machine.",
    "inline async function": "Its state is copied on access and checked, so that a step that fails "
    "leaves it as it was.",
    "a monitored loop": "2.6 to 4 % from run to run; the loop is free every millisecond for it.",
    "jax": "Steps run in a thread, so that the loop is never held: 0.25 ms a step.",
    "local": "The service, its training and the clients share two threads of one core here.",
    "in process": "As for sessions in a child process.",
    "n sessions in a loop": "5,000 sessions made 15,000 calls of timers a second, of 50 µs, which is "
    "all of the core. With as many calls as 1,000 make, as the row is now, a step of one takes 28 µs, "
    "and 19 beside 1,000.",
}
