"""Converts exceptions of libraries to an IngestError that says what happened, where, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ingest.config import Pipeline
from ingest.errors import IngestError
from ingest.failures.table import FAILURES
from ingest.jvm.causes import Cause, causes, own_error

_LIBRARIES = ("pyspark", "py4j", "delta", "deltalake", "confluent_kafka", "cimpl", "botocore", "psycopg", "sqlalchemy")
"""Packages whose exceptions are converted; any other exception is a defect of this project. `cimpl` is part of
confluent_kafka."""


class RunFailed(IngestError):
    """A failure that no line of `FAILURES` describes."""


def to_ingest_error(error: Exception, pipeline: Pipeline) -> IngestError | None:
    """Returns the IngestError for an exception, from the first line of `FAILURES` that applies; None for a defect of
    this project.

    The library's own text is shown with `--debug` only: it may quote rows and literals.
    """
    if isinstance(error, IngestError):
        return error
    if not _is_of_a_library(error):
        return None
    if (project_error := own_error(error)) is not None:
        return project_error
    chain = causes(error)
    failure = next((f for f in FAILURES if f.applies(chain, pipeline)), None)
    if failure is not None:
        return failure.kind(f"pipeline {pipeline.name}: {_fill(failure.problem, chain, pipeline)}", failure.remedy)
    return RunFailed(
        f"pipeline {pipeline.name}: a Spark job failed ({_innermost(chain).name})",
        "this looks like a defect of ingest: report it with the trace that --debug prints; no merged data is lost",
    )


@contextmanager
def converting_errors(pipeline: Pipeline) -> Iterator[None]:
    """Converts exceptions of libraries in the block to IngestErrors."""
    try:
        yield
    except IngestError:
        raise
    except Exception as error:
        problem = to_ingest_error(error, pipeline)
        if problem is None:
            raise
        raise problem from error


def _is_of_a_library(error: Exception) -> bool:
    if isinstance(error, BrokenPipeError):
        return False  # The reader of the output has closed the pipe.
    packages = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
    return isinstance(error, OSError | MemoryError) or not packages.isdisjoint(_LIBRARIES)


def _innermost(chain: Sequence[Cause]) -> Cause:
    """Returns the last cause that has a condition of its own, or else the last cause."""
    return next((c for c in reversed(chain) if c.condition not in (None, "PYTHON_EXCEPTION")), chain[-1])


def _fill(problem: str, chain: Sequence[Cause], pipeline: Pipeline) -> str:
    files = (c.parameters.get("path") or c.parameters.get("file") for c in chain)
    file = next((f for f in files if f), pipeline.lakehouse)
    kafka = pipeline.source.kafka.get("bootstrap.servers", "")
    return problem.format(kafka=kafka, lakehouse=pipeline.lakehouse, file=file)
