"""How often code has to run before the JVM's optimising compiler takes it. It imports nothing: who races against this
project in another environment is told the same.

At its own thresholds the compiler takes more than a quarter of all CPU where plans are many and rows few. What runs for
each row passes higher ones after a moment all the same.
"""

_TIMES = 20
"""By batches of 500 events: at 10 compiling takes more than it saves, at 80 what isn't compiled does."""
_OWN = {
    "Tier4InvocationThreshold": 5000,
    "Tier4MinInvocationThreshold": 600,
    "Tier4CompileThreshold": 15000,
    "Tier4BackEdgeThreshold": 40000,
}
"""The JVM's defaults."""

_CODE_MEGABYTES = 512
"""Code that waits for it is kept in one of the two halves: of the JVM's own 240 a stream fills that half within a
quarter of an hour, and what is thrown away then has to be compiled again."""

PATIENT_COMPILER = " ".join(
    [
        *(f"-XX:{name}={_TIMES * times}" for name, times in _OWN.items()),
        f"-XX:ReservedCodeCacheSize={_CODE_MEGABYTES}m",
    ]
)
"""What a JVM is told."""
