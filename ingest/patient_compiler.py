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

PATIENT_COMPILER = " ".join(f"-XX:{name}={_TIMES * times}" for name, times in _OWN.items())
"""What a JVM is told."""
