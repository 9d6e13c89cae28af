"""Events and plans on an Amazon Data Firehose stream, which gathers them into files of a bucket.

A record is not one event: Firehose charges each as 5 kB at least, and joins records without a character of its own
(Amazon Data Firehose pricing; API reference, PutRecordBatch). So a record is whole lines, as many as fit. What is sent
twice, after a kill or an answer that was lost, is there twice; `peakplan value` counts each event once by its id.
Tested against moto; not run in AWS.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from service.events.shipping import SinkError

# PutRecordBatch takes 500 records of 1,000 KiB at most, and 4 MiB in all.
MOST_RECORDS, MOST_RECORD_BYTES, MOST_BYTES = 500, 1000 * 1024, 4 * 1024 * 1024
_RECORD_BYTES = 128 * 1024
_TRIES, _FIRST_PAUSE_SECONDS = 4, 0.1
_CALL = Config(connect_timeout=5, read_timeout=10, retries={"mode": "standard", "total_max_attempts": 2})


class FirehoseSink:
    """Puts lines on a stream. What the stream leaves out of a batch is sent again, by itself."""

    def __init__(self, arn: str, client: Any = None, sleep: Callable[[float], None] = time.sleep) -> None:
        """Take the stream's ARN, which names its region, too; and a client of botocore's, by default one of its own."""
        self._stream, self._sleep = arn.rpartition("/")[2], sleep
        self._client = client or botocore.session.get_session().create_client(
            "firehose", region_name=arn.split(":")[3], config=_CALL
        )

    def take(self, lines: Sequence[bytes]) -> None:
        """Put all of these lines. Raises SinkError, after which all of them are to be given again."""
        left, why, pause = list(records(lines)), "", _FIRST_PAUSE_SECONDS
        for _ in range(_TRIES):
            failed: list[bytes] = []
            for batch in batches(left):
                refused, why = self._put(batch, why)
                failed += refused
            if not failed:
                return
            left = failed
            self._sleep(pause)
            pause *= 2
        raise SinkError(f"Firehose: {len(left)} records of {self._stream} are refused: {why}")

    def close(self) -> None:
        self._client.close()

    def _put(self, batch: Sequence[bytes], why: str) -> tuple[list[bytes], str]:
        """Return the records that the stream did not take, and why the last of them."""
        try:
            answer = self._client.put_record_batch(
                DeliveryStreamName=self._stream, Records=[{"Data": record} for record in batch]
            )
        except ClientError as error:
            raise SinkError(f"Firehose: {error.response['Error']['Code']}") from None  # messages may have records
        except BotoCoreError as error:
            raise SinkError(f"Firehose: {type(error).__name__}") from None
        told = zip(batch, answer["RequestResponses"], strict=True)
        refused = [(record, each["ErrorCode"]) for record, each in told if "ErrorCode" in each]
        return [record for record, _ in refused], refused[-1][1] if refused else why


def records(lines: Sequence[bytes]) -> Iterator[bytes]:
    """Yield records of whole lines, each ended by a newline. No line is longer than a request to the service."""
    return map(b"".join, _groups((line + b"\n" for line in lines if line), _RECORD_BYTES))


def batches(records: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield records in order, as many at a time as one call takes."""
    return _groups(records, MOST_BYTES, MOST_RECORDS)


def _groups(items: Iterable[bytes], most_bytes: int, most: float = math.inf) -> Iterator[list[bytes]]:
    group: list[bytes] = []
    size = 0
    for item in items:
        if group and (len(group) == most or size + len(item) > most_bytes):
            yield group
            group, size = [], 0
        group.append(item)
        size += len(item)
    if group:
        yield group
