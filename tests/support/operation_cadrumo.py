"""Answers lease calls with the published Python package, one JSON object a line."""

import asyncio
import json
import sys
from pathlib import Path

from cadrumo.adapters.persistence.operations.lease import OperationLeaseFilesystemRepository
from cadrumo.application.operations.persistence.leases import OperationOwnerLease
from pydantic import TypeAdapter
from datetime import datetime

INSTANT = TypeAdapter(datetime)


def lease(value):
    return OperationOwnerLease.model_validate_json(json.dumps(value))


async def answer(request):
    repository = OperationLeaseFilesystemRepository(storage_root=Path(request["root"]))
    now = INSTANT.validate_python(request["observed_at"])
    match request["call"]:
        case "inspect":
            result = await repository.inspect(request["scope_ref"], request["operation_id"], observed_at=now)
        case "acquire":
            result = await repository.acquire(lease(request["candidate"]), observed_at=now)
        case "compare_and_swap":
            result = await repository.compare_and_swap(
                lease(request["predecessor"]), lease(request["successor"]), observed_at=now
            )
        case "release":
            result = await repository.release(lease(request["predecessor"]), observed_at=now)
    return result.disposition.value


for line in sys.stdin:
    try:
        word = asyncio.run(answer(json.loads(line)))
    except Exception as error:
        word = f"error {type(error).__name__}"
    print(word, flush=True)
