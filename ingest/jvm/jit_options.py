"""Options of the JVM's optimising compiler. Imports nothing, so that benchmarks give other engines the same.

At its default thresholds the compiler takes more than a quarter of all CPU where plans are many and rows few. Code that
runs for each row passes the higher thresholds after a moment all the same.
"""

_TIMES = 20
"""Factor of the thresholds, measured with batches of 500 events: at 10 compilation costs more than it saves, at 80
interpreted code does."""
_OWN = {
    "Tier4InvocationThreshold": 5000,
    "Tier4MinInvocationThreshold": 600,
    "Tier4CompileThreshold": 15000,
    "Tier4BackEdgeThreshold": 40000,
}
"""The JVM's default thresholds."""

_CODE_MEGABYTES = 512
"""Size of the code cache. Code below the thresholds lies in one half of it: of the default of 240 MB a stream fills
that half within a quarter of an hour, and evicted code is compiled again."""

PATIENT_COMPILER = " ".join(
    [
        *(f"-XX:{name}={_TIMES * times}" for name, times in _OWN.items()),
        f"-XX:ReservedCodeCacheSize={_CODE_MEGABYTES}m",
    ]
)
"""The options on a JVM's command line."""
