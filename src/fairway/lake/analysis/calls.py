"""Which answer a call got: a SYN names its own id and a connect half of one, and the answer brings the session's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CALLS = ("syn", "connect")
ANSWERS = ("syn_ack", "con_reply")

IN_TIME = ("at_ns", "file_id", "offset")
"""The order of records at one point: by time, then by place, so that it does not depend on the order of files."""

FORWARD = "(source, source_port) < (destination, destination_port)"
"""A direction that both sides of a flow agree on, before it is known who called."""

_CALL = "(udpc_kind = 'syn' OR mrp_kind = 'connect')"
_ANSWER = "(udpc_kind = 'syn_ack' OR mrp_kind = 'con_reply')"


def answered_calls(datagrams: DataFrame) -> DataFrame:
    """Gives `file_id`, `offset` and `answer` of every call that was answered.

    `answer` is the sessionID (udpc) or the sv_conid (mrp; 0 if rejected) of the next answer to this call, and for a
    copy of a call that comes after its answer, of the one before.
    """
    handshakes = datagrams.where(f"{_CALL} OR {_ANSWER}").selectExpr(
        *IN_TIME,
        "point",
        "flow",
        f"{_CALL} AS calls",
        f"IF({_CALL}, {FORWARD}, NOT {FORWARD}) AS caller_forward",
        "coalesce(IF(udpc_kind = 'syn_ack', udpc_ack, IF(udpc_kind = 'syn', udpc_index, NULL)), mrp_client) AS number",
        f"IF({_ANSWER}, coalesce(IF(udpc_kind = 'syn_ack', udpc_session, NULL), mrp_server), NULL) AS answer",
    )
    same_call = Window.partitionBy("point", "flow", "caller_forward", "number")
    later = same_call.orderBy(*(F.col(name).desc() for name in IN_TIME))
    until_here = (Window.unboundedPreceding, Window.currentRow)
    following = F.last("answer", ignorenulls=True).over(later.rowsBetween(*until_here))
    preceding = F.last("answer", ignorenulls=True).over(same_call.orderBy(*IN_TIME).rowsBetween(*until_here))
    resolved = handshakes.withColumn("found", F.coalesce(following, preceding))
    return resolved.where("calls AND found IS NOT NULL").selectExpr("file_id", "offset", "found AS answer")
