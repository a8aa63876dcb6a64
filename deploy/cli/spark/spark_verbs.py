"""`kraft spark`: SQL over the cluster's state, its history and its topics, and pipelines, on Apache Spark.

    kraft spark sql "select broker_id, count(*) from replicas where not is_in_sync group by 1"
    kraft spark sql --as-of -1h "select topic, partition, leader, isr from partitions"
    kraft spark sql "select key, value from topic_orders limit 10"
    kraft spark shell
    kraft spark tables partitions
    kraft spark run cluster-health

pyspark is imported only when a session is started, so other commands and `--help` do not need it.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kraft.client.spark.jobs.registry import JOBS, Job, JobOption
from kraft.deploy.cli.completing import one_of
from kraft.deploy.cli.connection import ClusterConnection, over_network
from kraft.deploy.cli.output import EXIT_USAGE, CommandFailed, JsonOption, YesOption, confirm, show

if TYPE_CHECKING:
    from collections.abc import Callable

FORMATS = ("table", "csv", "json")

app = typer.Typer(
    help="Query the cluster and its topics with Apache Spark, and run pipelines.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
_pipelines = typer.Typer(help="Run a pipeline; see kraft spark list.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(_pipelines, name="run")

MasterOption = Annotated[
    str, typer.Option("--master", metavar="URL", help="Where Spark runs: local[*] or spark://HOST:PORT.")
]
ConfOption = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark; may be repeated."),
]
FolderOption = Annotated[
    Path | None,
    typer.Option("--folder", metavar="DIR", help="Read tables of the metadata log from the files below this folder."),
]
WHEN = "an offset of the metadata log, or a time: 2026-11-21T10:00:00, -1h"
AsOfOption = Annotated[str | None, typer.Option("--as-of", metavar="WHEN", help=f"Tables as of {WHEN}.")]
LOCAL_MASTER = "local[*]"


def _complete_table(incomplete: str) -> list[str]:
    from kraft.client.spark.tables import TABLES

    return [name for name in TABLES if name.startswith(incomplete)]


@app.command(context_settings={"ignore_unknown_options": False})
@over_network
def sql(
    connection: ClusterConnection,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="The query; - reads it from standard input.")],
    format: Annotated[
        str,
        typer.Option("--format", metavar="FORMAT", help="table, csv or json.", autocompletion=one_of(*FORMATS)),
    ] = "table",
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=1, metavar="N", help="Rows to print. Default: 1000 in a table, else all."),
    ] = None,
    as_of: AsOfOption = None,
    start: Annotated[
        str | None, typer.Option("--from", metavar="WHEN", help=f"Start of metadata_diff: {WHEN}.")
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", metavar="WHEN", help=f"End of metadata_diff: {WHEN}. Default: now.")
    ] = None,
    folder: FolderOption = None,
    master: MasterOption = LOCAL_MASTER,
    conf: ConfOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a query in SQL. `kraft spark tables` lists the tables. A topic is the view topic_NAME, with key and value as
    text; quote it with backticks if its name has characters other than letters, digits and _."""
    if format not in FORMATS:
        raise CommandFailed(f"--format {format}: expected {', '.join(FORMATS)}", code=EXIT_USAGE)
    from kraft.client.spark.views import create_views, views_in
    from kraft.deploy.cli.spark.printed_rows import print_frame
    from kraft.deploy.cli.spark.spark_session import cluster_options, reading, session, time_options

    text = _read_query(query)
    times = time_options("asOf", as_of) | time_options("from", start) | time_options("to", end)
    cluster = cluster_options(connection, folder) | times
    with session(master, conf) as spark, reading(spark, "query"):
        try:
            create_views(spark, cluster, views_in(text))
        except ValueError as problem:
            raise CommandFailed(str(problem), code=EXIT_USAGE) from None
        print_frame(spark.sql(text), "json" if as_json else format, limit)


@app.command()
@over_network
def shell(
    connection: ClusterConnection,
    as_of: AsOfOption = None,
    folder: FolderOption = None,
    master: MasterOption = LOCAL_MASTER,
    conf: ConfOption = None,
) -> None:
    """Open a Python shell with `spark` and `sql("…")`, which knows the same tables as `kraft spark sql`."""
    from kraft.deploy.cli.spark.shell import run_shell
    from kraft.deploy.cli.spark.spark_session import cluster_options, session, time_options

    with session(master, conf) as spark:
        run_shell(spark, cluster_options(connection, folder) | time_options("asOf", as_of))


@app.command()
def tables(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[TABLE]", help="Show its columns.", autocompletion=_complete_table),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the tables of a cluster, or the columns of one."""
    from kraft.client.spark.tables import TABLES, TableError, table_of

    if name is None:
        rows = [
            (table.name, len(table.columns), table.has_time_travel, table.is_streamable, table.meaning)
            for table in TABLES.values()
        ]
        show(as_json, ("table", "columns", "time_travel", "stream", "meaning"), rows)
        return
    try:
        table = table_of(name)
    except TableError as problem:
        raise CommandFailed(str(problem), code=EXIT_USAGE) from None
    columns = [(one.name, one.type, one.is_live, one.source.value, one.meaning) for one in table.columns]
    show(as_json, ("column", "type", "live", "source", "meaning"), columns)


@app.command("list")
def list_pipelines(as_json: JsonOption = False) -> None:
    """List the pipelines that `kraft spark run` can run."""
    show(as_json, ("pipeline", "what it does"), [(job.name, job.about) for job in JOBS.values()])


@app.command()
def options(as_json: JsonOption = False) -> None:
    """List the options of `format("kraft")`: purpose, default and meaning."""
    from kraft.client.spark.options.table import OPTIONS

    rows = [(one.name, sorted(kind.value for kind in one.kinds), one.default or None, one.meaning) for one in OPTIONS]
    show(as_json, ("option", "for", "default", "meaning"), rows)


@app.command()
@over_network
def forget(
    connection: ClusterConnection,
    query_id: Annotated[str, typer.Argument(metavar="QUERY_ID", help="The id of the query, from its checkpoint.")],
    progress_topic: Annotated[
        str, typer.Option("--progress-topic", metavar="TOPIC", help="The topic in which the query stored its progress.")
    ] = "__kraft_spark_progress",
    is_confirmed: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Delete the exactly-once progress of a query that will never run again: it would write its last batch twice."""
    confirm(f"delete the progress of query {query_id}: it must not run again.", is_confirmed=is_confirmed)
    from kraft.deploy.cli.spark.spark_session import forget_query

    count = forget_query(connection, query_id, progress_topic)
    show(as_json, ("query", "forgotten"), [(query_id, count)])


def _read_query(query: str) -> str:
    import sys

    text = sys.stdin.read() if query == "-" else query
    return text.strip().rstrip(";")


def _pipeline(job: Job) -> Callable[..., None]:
    """Return the command that runs a pipeline. Its options are those of the pipeline, of the Spark session and of the
    connection."""

    def verb(
        connection: ClusterConnection,
        master: MasterOption = LOCAL_MASTER,
        conf: ConfOption = None,
        as_json: JsonOption = False,
        **options: Any,
    ) -> None:
        from kraft.deploy.cli.spark.printed_rows import print_result
        from kraft.deploy.cli.spark.spark_session import cluster_options, reading, session

        with session(master, conf) as spark, reading(spark, job.name):
            print_result(spark, job.load()(spark, cluster_options(connection, None), **options), as_json=as_json)

    first, *others, _ = inspect.signature(verb).parameters.values()
    own = [_parameter(option) for option in job.options]
    rest = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in others]
    verb.__signature__ = inspect.Signature([first, *own, *rest])  # type: ignore[attr-defined]
    verb.__annotations__ = {one.name: one.annotation for one in [first, *own, *rest]}
    verb.__doc__ = job.about
    return over_network(verb)


def _parameter(option: JobOption) -> inspect.Parameter:
    flag = f"--{option.name.replace('_', '-')}"
    is_number = option.type in (int, float)
    metavar = option.metavar if option.metavar or option.type is bool else "N" if is_number else "TEXT"
    about = typer.Option(flag, metavar=metavar, help=option.help)
    kind: Any = option.type if option.is_required or option.default is not None else option.type | None
    default = inspect.Parameter.empty if option.is_required else option.default
    return inspect.Parameter(
        option.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, about]
    )


for _job in JOBS.values():
    _pipelines.command(_job.name)(_pipeline(_job))
