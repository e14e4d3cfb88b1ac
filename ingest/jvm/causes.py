"""The causes of a failure as facts: exception classes, error conditions and numbers, never the text of a message.

A failure in a JVM is a chain of Java throwables, one in a Python worker reaches the driver as a traceback. Both become
a list of `Cause`s, the outermost first. Workers write theirs as one line of JSON into a note of the exception
(PEP 678), which Python prints with the traceback whatever Spark's traceback settings are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from ingest.errors import IngestError

JAVA_ERRORS = (PySparkException, Py4JJavaError)
"""Exceptions of code in the JVM: as PySpark converts them, and as they are where it does not."""
ENGINE_ERRORS = (PySparkException, Py4JError)
"""The same, and a lost connection to the JVM."""
JVM_ENDED = (Py4JError, OSError)
"""Exceptions of calls into a JVM that has ended."""
_NOTE = "ingest-cause: "
_DEEPEST = 20
_FRAMES = 3
_WORKER = "org.apache.spark.api.python.PythonException"
_CONDITIONED = "org.apache.spark.SparkThrowable"


@dataclass(frozen=True)
class Cause:
    """One throwable. `classes`: names of its class and of those above it, nearest first. `condition`: Spark's or
    Delta's error condition, whose `parameters` may hold values. `raised_in`: Java classes of its innermost frames.
    `errno`: the operating system's error number."""

    classes: tuple[str, ...]
    condition: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    raised_in: tuple[str, ...] = ()
    errno: int | None = None

    @property
    def name(self) -> str:
        """Returns the condition, or the class without its package."""
        return self.condition or self.classes[0].rpartition(".")[2]


def causes(error: BaseException) -> list[Cause]:
    """Returns the chain of `error`, outermost first: through Python's causes, into the JVM's, and into a worker's."""
    found: list[Cause] = []
    for one in _python_chain(error):
        found.append(_python_cause(one))
        throwable = _throwable(one)
        if throwable is not None:
            found += _java_causes(throwable)
    return found


def own_error(error: BaseException) -> IngestError | None:
    """Returns the `IngestError` that a Python worker raised; None for any other failure."""
    for one in _python_chain(error):
        throwable = _throwable(one)
        while throwable is not None:
            if _class_names(throwable)[0] == _WORKER and (note := _worker_note(throwable)) and note["error"]:
                return _revived(*note["error"])
            throwable = throwable.getCause()
    return None


def python_names(*kinds: type[BaseException]) -> tuple[str, ...]:
    """Returns the names that a `Cause` has for these Python classes."""
    return tuple(_names_of(kind)[0] for kind in kinds)


def describe(error: Exception) -> None:
    """Adds the note by which the driver recognises a failure in a Python worker. A note that is there stays."""
    if any(note.startswith(_NOTE) for note in getattr(error, "__notes__", ())):
        return
    own = error if isinstance(error, IngestError) else None
    facts = {
        "error": None if own is None else [_names_of(type(own))[0], own.problem, own.remedy],
        "causes": [asdict(_python_cause(one)) for one in _python_chain(error)],
    }
    error.add_note(_NOTE + json.dumps(facts))


def _python_chain(error: BaseException) -> Iterator[BaseException]:
    one: BaseException | None = error
    for _ in range(_DEEPEST):
        if one is None:
            return
        yield one
        one = one.__cause__


def _python_cause(error: BaseException) -> Cause:
    errno = error.errno if isinstance(error, OSError) else None
    return Cause(_names_of(type(error)), errno=errno)


def _names_of(kind: type[BaseException]) -> tuple[str, ...]:
    return tuple(f"{c.__module__}.{c.__qualname__}" for c in kind.__mro__ if issubclass(c, BaseException))


def _throwable(error: BaseException) -> Any:
    """Returns the Java throwable of an exception of py4j or PySpark."""
    return getattr(error, "java_exception", None) or getattr(error, "_origin", None)


def _java_causes(throwable: Any) -> list[Cause]:
    found: list[Cause] = []
    while throwable is not None and len(found) < _DEEPEST:
        names = _class_names(throwable)
        condition, parameters = _condition(throwable)
        frames = throwable.getStackTrace()
        raised_in = tuple(str(frames[n].getClassName()) for n in range(min(_FRAMES, len(frames))))
        found.append(Cause(names, condition, parameters, raised_in))
        if names[0] == _WORKER and (note := _worker_note(throwable)):
            found += [_revived_cause(facts) for facts in note["causes"]]
        throwable = throwable.getCause()
    return found


def _class_names(throwable: Any) -> tuple[str, ...]:
    found, one = list[str](), throwable.getClass()
    while one is not None and str(one.getName()) != "java.lang.Object":
        found.append(str(one.getName()))
        one = one.getSuperclass()
    return tuple(found)


def _condition(throwable: Any) -> tuple[str | None, Mapping[str, str]]:
    jvm: Any = SparkContext._jvm
    if not jvm.java.lang.Class.forName(_CONDITIONED).isInstance(throwable):
        return None, {}
    condition = jvm.PythonErrorUtils.getCondition(throwable)
    return condition, dict(jvm.PythonErrorUtils.getMessageParameters(throwable)) if condition else {}


def _worker_note(throwable: Any) -> Mapping[str, Any] | None:
    """Returns the note of `describe` out of the traceback that the worker sent."""
    lines = [line.strip() for line in str(throwable.getMessage()).splitlines()]
    notes = [line.removeprefix(_NOTE) for line in lines if line.startswith(_NOTE)]
    return dict(json.loads(notes[-1])) if notes else None


def _revived_cause(facts: Mapping[str, Any]) -> Cause:
    return Cause(**{**facts, "classes": tuple(facts["classes"]), "raised_in": tuple(facts["raised_in"])})


def _revived(name: str, problem: str, remedy: str) -> IngestError:
    kind = next((k for k in _kinds(IngestError) if _names_of(k)[0] == name), IngestError)
    return kind(problem, remedy)


def _kinds(kind: type[IngestError]) -> Iterator[type[IngestError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _kinds(below)
