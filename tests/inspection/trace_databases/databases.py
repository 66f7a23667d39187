"""Small databases in the two schemas with all real columns.

docs/inspect.md names the sources.
"""

import contextlib
import sqlite3

from rnn_scaling.commands import inspect_files
from rnn_scaling.config import flags

MS = 1_000_000
PID = 1234
GLOBAL_PID = (1 << 56) | (PID << 24)

NSYS = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT);
CREATE TABLE TARGET_INFO_GPU (vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT, busLocation TEXT);
CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INTEGER, cudaId INTEGER, pid INTEGER, uuid TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER,
  globalPid INTEGER, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER,
  gridX INTEGER NOT NULL DEFAULT 1, graphNodeId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
  bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL, srcKind INTEGER, dstKind INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, globalPid INTEGER, value INTEGER NOT NULL,
  bytes INTEGER NOT NULL, memKind INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,
  globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, callchainId INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER,
  text TEXT, globalTid INTEGER, textId INTEGER, domainId INTEGER);
CREATE TABLE GPU_METRICS (timestamp INTEGER NOT NULL, typeId INTEGER NOT NULL, value INTEGER NOT NULL);
CREATE INDEX KERNEL_START ON CUPTI_ACTIVITY_KIND_KERNEL (start);
INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '3.15.1'), ('NSIGHT_SYSTEMS_VERSION', '2024.7.1');
INSERT INTO TARGET_INFO_GPU VALUES (0, 0, 'GeForce GTX 1070', '0000:01:00.0'), (0, 1, 'Tesla M60', '0000:02:00.0');
INSERT INTO StringIds VALUES (1, 'void gemm<float>(float*)'), (2, 'gemm'), (3, 'pointwise'),
  (4, 'cudaLaunchKernel_v7000'), (5, 'cudaMemcpyAsync_v3020'), (6, 'step');
"""

NVPROF = """
CREATE TABLE StringTable (_id_ INTEGER PRIMARY KEY AUTOINCREMENT, value TEXT NOT NULL UNIQUE);
CREATE TABLE Version (version INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL (_id_ INTEGER PRIMARY KEY AUTOINCREMENT, cacheConfig BLOB NOT NULL,
  start INT NOT NULL, end INT NOT NULL, completed INT NOT NULL, deviceId INT NOT NULL, contextId INT NOT NULL,
  streamId INT NOT NULL, correlationId INT NOT NULL, name INT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (_id_ INTEGER PRIMARY KEY AUTOINCREMENT, copyKind INT NOT NULL,
  srcKind INT NOT NULL, dstKind INT NOT NULL, flags INT NOT NULL, bytes INT NOT NULL, start INT NOT NULL,
  end INT NOT NULL, deviceId INT NOT NULL, contextId INT NOT NULL, streamId INT NOT NULL, correlationId INT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY2 (_id_ INTEGER PRIMARY KEY AUTOINCREMENT, copyKind INT NOT NULL,
  srcKind INT NOT NULL, dstKind INT NOT NULL, bytes INT NOT NULL, start INT NOT NULL, end INT NOT NULL,
  deviceId INT NOT NULL, contextId INT NOT NULL, streamId INT NOT NULL, srcDeviceId INT NOT NULL,
  dstDeviceId INT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (_id_ INTEGER PRIMARY KEY AUTOINCREMENT, cbid INT NOT NULL, start INT NOT NULL,
  end INT NOT NULL, processId INT NOT NULL, threadId INT NOT NULL, correlationId INT NOT NULL,
  returnValue INT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_DRIVER (_id_ INTEGER PRIMARY KEY AUTOINCREMENT, cbid INT NOT NULL, start INT NOT NULL,
  end INT NOT NULL, processId INT NOT NULL, threadId INT NOT NULL, correlationId INT NOT NULL,
  returnValue INT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_DEVICE (_id_ INTEGER PRIMARY KEY AUTOINCREMENT, id INT NOT NULL, name INT NOT NULL);
INSERT INTO Version VALUES (9);
INSERT INTO StringTable VALUES (1, '_ZN5Eigen8internal4gemmIfEEvPT_'), (2, 'pointwise'), (3, 'step'),
  (4, 'GeForce GTX 1070');
INSERT INTO CUPTI_ACTIVITY_KIND_DEVICE (id, name) VALUES (0, 4);
"""


@contextlib.contextmanager
def change_database(file):
    """Yield a connection to a database whose changes are kept."""
    with contextlib.closing(sqlite3.connect(file)) as db:
        yield db
        db.commit()


@contextlib.contextmanager
def make_database(file, schema):
    """Yield a connection to a new database with the tables of `schema`."""
    with change_database(file) as db:
        db.executescript(
            "PRAGMA synchronous = OFF; PRAGMA page_size = 8192; PRAGMA user_version = 3;"
            + schema
        )
        yield db


def kernel(db, start, end, device=0, stream=7, name=1, pid=GLOBAL_PID, context=1):
    """Add a kernel of Nsight Systems; times in ns."""
    db.execute(
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, contextId, streamId, globalPid, demangledName, "
        "shortName) VALUES (?, ?, ?, ?, ?, ?, ?, 2)",
        (start, end, device, context, stream, pid, name),
    )


def copy(db, start, end, size, kind=1, source=1, target=2, device=0, stream=14):
    """Add a copy of Nsight Systems."""
    db.execute(
        "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY (start, end, deviceId, contextId, streamId, globalPid, bytes, "
        "copyKind, srcKind, dstKind) VALUES (?, ?, ?, 1, ?, ?, ?, ?, ?, ?)",
        (start, end, device, stream, GLOBAL_PID, size, kind, source, target),
    )


def nsys(file):
    """Write three kernels and two copies on one device out of order.

    Times in ms from 100:

    call     0-1 launch
    kernel   2-6 gemm, 16-20 gemm, 18-22 pointwise (another stream)
    copy     5-9 HtoD, 8 MB, pinned; 30-32 DtoH, 1 MB, to pageable
    memset   34-35; range "step" 0-40, and an open range from 10
    """
    with make_database(file, NSYS) as db:
        t = 100 * MS
        kernel(db, t + 18 * MS, t + 22 * MS, stream=8, name=3)
        kernel(db, t + 2 * MS, t + 6 * MS)
        kernel(db, t + 16 * MS, t + 20 * MS)
        copy(db, t + 5 * MS, t + 9 * MS, 8_000_000)
        copy(db, t + 30 * MS, t + 32 * MS, 1_000_000, kind=2, source=2, target=0)
        db.execute(
            "INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES (?, ?, 0, 1, 7, ?, 0, 4096, 2)",
            (t + 34 * MS, t + 35 * MS, GLOBAL_PID),
        )
        db.execute(
            "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, 0, ?, 1, 4, 0, NULL)",
            (t, t + MS, GLOBAL_PID + 1),
        )
        db.executemany(
            "INSERT INTO NVTX_EVENTS (start, end, eventType, text, textId) VALUES (?, ?, ?, ?, ?)",
            [
                (t, t + 40 * MS, 59, None, 6),
                (t + 10 * MS, None, 60, "never closed", None),
            ],
        )
        db.executemany(
            "INSERT INTO GPU_METRICS VALUES (?, 0, 50)",
            [(t + i * MS,) for i in range(40)],
        )


def nvprof(file):
    """Write the kernels and copies of nsys(), and 2 MB between devices at 24-25."""
    with make_database(file, NVPROF) as db:
        t = 1_500_000_000 * 10**9  # nvprof counts from 1970
        for start, end, stream, name in ((18, 22, 8, 2), (2, 6, 7, 1), (16, 20, 7, 1)):
            db.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL (cacheConfig, start, end, completed, deviceId, "
                "contextId, streamId, correlationId, name) VALUES (x'00', ?, ?, ?, 0, 1, ?, 1, ?)",
                (t + start * MS, t + end * MS, t + end * MS, stream, name),
            )
        for start, end, size, kind, source, target in (
            (5, 9, 8_000_000, 1, 2, 3),
            (30, 32, 1_000_000, 2, 3, 1),
        ):
            db.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY (copyKind, srcKind, dstKind, flags, bytes, start, end, "
                "deviceId, contextId, streamId, correlationId) VALUES (?, ?, ?, 0, ?, ?, ?, 0, 1, 14, 1)",
                (kind, source, target, size, t + start * MS, t + end * MS),
            )
        db.execute(
            "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY2 (copyKind, srcKind, dstKind, bytes, start, end, deviceId, "
            "contextId, streamId, srcDeviceId, dstDeviceId) VALUES (8, 3, 3, 2000000, ?, ?, 0, 1, 14, 0, 1)",
            (t + 24 * MS, t + 25 * MS),
        )
        db.execute(
            "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (NULL, 211, ?, ?, 1, 1, 1, 0)",
            (t, t + MS),
        )
        db.execute(
            "INSERT INTO CUPTI_ACTIVITY_KIND_DRIVER VALUES (NULL, 307, ?, ?, 1, 1, 1, 0)",
            (t + 14 * MS, t + 15 * MS),
        )


def look(*words):
    """Return the summary's text and the problems for a command line."""
    options = flags.read(
        [str(word) for word in words], "", inspect_files.ReadingOptions, "inspect"
    )
    return inspect_files.look(options)
