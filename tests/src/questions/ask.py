"""Opens a data set as docs/tables.md says, and answers the questions there: a line of JSON for each.

ask.py duckdb|spark TABLES.md PLACE [ENDPOINT]

The blocks of Python that open a data set are taken from the document, and run as they are but for the place. With
an endpoint, DuckDB reads from a server of S3 there. Spark runs on this machine, with two threads, and with what the
variable SPARK_CONF has: KEY=VALUE ...
"""

import datetime
import decimal
import json
import os
import pathlib
import re
import sys
import time

SECTION = "## Questions about a fleet"


def blocks(text, language):
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def value(it):
    if isinstance(it, decimal.Decimal):
        return int(it) if it == it.to_integral_value() else float(it)
    if isinstance(it, datetime.datetime):
        return it.strftime("%Y-%m-%d %H:%M:%S.%f")
    return it


def prepare_duckdb(endpoint):
    import duckdb
    import duckdb_extension_httpfs

    # DuckDB itself checks who signed it.
    here = pathlib.Path(duckdb_extension_httpfs.__file__).parent
    extension = here / f"extensions/v{duckdb.__version__}/httpfs.duckdb_extension"
    connect = duckdb.connect

    def connected():
        db = connect()
        db.execute(f"LOAD '{extension}'")
        if endpoint:
            db.execute(
                "CREATE SECRET (TYPE s3, KEY_ID 'testing', SECRET 'testing', REGION 'us-east-1',"
                f" ENDPOINT '{endpoint}', URL_STYLE 'path', USE_SSL false)"
            )
        return db

    duckdb.connect = connected


def prepare_spark():
    conf = {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "ERROR",
    }
    conf.update(one.split("=", 1) for one in os.environ.get("SPARK_CONF", "").split())
    options = " ".join(f"--conf {key}={value}" for key, value in conf.items())
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--master local[2] {options} pyspark-shell"


def main():
    engine, document, place = sys.argv[1:4]
    endpoint = sys.argv[4] if len(sys.argv) > 4 else None
    text = pathlib.Path(document).read_text().split(SECTION)[1]
    events, with_duckdb, with_spark = blocks(text, "python")[:3]
    if engine == "duckdb":
        prepare_duckdb(endpoint)
        opening = with_duckdb
    else:
        prepare_spark()
        opening = with_spark
    opening, changed = re.subn(r'^PLACE = ".*"$', f"PLACE = {place!r}", opening, flags=re.MULTILINE)
    assert changed == 1, opening
    known = {}
    began = time.monotonic()
    exec(events + opening, known)
    print(json.dumps({"question": "open", "seconds": time.monotonic() - began, "rows": []}), flush=True)
    questions = re.findall(r"^\*\*(.*?)\*\*.*?```sql\n(.*?);\n```", text, re.DOTALL | re.MULTILINE)
    for question, query in questions:
        began = time.monotonic()
        if engine == "duckdb":
            found = known["db"].execute(query)
            names, rows = [column[0] for column in found.description], found.fetchall()
        else:
            found = known["spark"].sql(query)
            names, rows = found.columns, found.collect()
        seconds = time.monotonic() - began
        rows = [dict(zip(names, map(value, row))) for row in rows]
        print(json.dumps({"question": question, "seconds": seconds, "rows": rows}), flush=True)


main()
