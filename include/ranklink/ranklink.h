#pragma once

/// The C interface of ranklink, for C99, C++ and callers that load the library at run time.
/// What the operations do is described in group.hpp, whose functions these are.
///
/// Status: functions that can fail return RANKLINK_OK (0) or the number of an error from
/// error_codes.def. They take an `error` last: NULL, or a variable that is set to an error object,
/// which the caller frees, or to NULL on success. Where memory is too short for the object it is
/// NULL beside a status that isn't 0. No exception leaves a function.
///
/// Arguments: a NULL that isn't allowed, an unknown number of an enum, and the like, give
/// RANKLINK_ERROR_bad_argument, take no part in a group operation, and leave the group as it was.
/// Results are written on success; a handle that is asked for is NULL after a failure.
///
/// Ownership: handles (group, work, shared buffer, error) and strings that are returned through a
/// `char**` belong to the caller, who gives each back once by its `_free`; these take NULL too.
/// Other strings belong to the object that they were got from, or to the library. What a call is
/// given stays the caller's, and is read before the call returns; only the memory of an operation
/// that was started is used until it has ended.
///
/// Threads: a group is used by one thread at a time, different groups by different threads at once;
/// but split, make_shared_buffer and register_memory by one thread of a process at a time. A work
/// or an error may be used by several threads. A handle is freed when nothing else uses it.

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RANKLINK_API __attribute__((visibility("default")))

/// Grows when something is added; a library keeps what an earlier version had.
#define RANKLINK_ABI_VERSION 1
/// The RANKLINK_ABI_VERSION of the library that is in use.
RANKLINK_API int ranklink_abi_version(void);
/// The version of the library that is in use, as in `0.1.0`.
RANKLINK_API const char* ranklink_version(void);

typedef struct ranklink_group ranklink_group;
typedef struct ranklink_work ranklink_work;
typedef struct ranklink_shared_buffer ranklink_shared_buffer;
typedef struct ranklink_error ranklink_error;

// ---- Numbers. They are passed as int, so that unknown ones can be refused. ----

enum ranklink_status {
  RANKLINK_OK = 0,
#define RANKLINK_ERROR(number, name, meaning) RANKLINK_ERROR_##name = number,
#include "ranklink/error_codes.def"
#undef RANKLINK_ERROR
};

/// f16 is IEEE 754 binary16, bf16 the upper half of an f32.
enum ranklink_data_type {
  RANKLINK_F16 = 0,
  RANKLINK_BF16 = 1,
  RANKLINK_F32 = 2,
  RANKLINK_F64 = 3,
  RANKLINK_I8 = 4,
  RANKLINK_U8 = 5,
  RANKLINK_I32 = 6,
  RANKLINK_I64 = 7
};

enum ranklink_reduce_op {
  RANKLINK_SUM = 0,
  RANKLINK_PROD = 1,
  RANKLINK_MIN = 2,
  RANKLINK_MAX = 3,
  RANKLINK_AVG = 4
};

enum ranklink_collective {
  RANKLINK_COLLECTIVE_ALL_REDUCE = 0,
  RANKLINK_COLLECTIVE_ALL_GATHER = 1,
  RANKLINK_COLLECTIVE_REDUCE_SCATTER = 2,
  RANKLINK_COLLECTIVE_BROADCAST = 3,
  RANKLINK_COLLECTIVE_REDUCE = 4,
  RANKLINK_COLLECTIVE_GATHER = 5,
  RANKLINK_COLLECTIVE_SCATTER = 6,
  RANKLINK_COLLECTIVE_ALL_TO_ALL = 7,
  RANKLINK_COLLECTIVE_ALL_TO_ALL_V = 8,
  RANKLINK_COLLECTIVE_EXCHANGE = 9,  ///< send, recv and exchange
  RANKLINK_COLLECTIVE_BARRIER = 10,
  RANKLINK_COLLECTIVE_SPLIT = 11,
  RANKLINK_COLLECTIVE_MAKE_SHARED_BUFFER = 12
};

enum ranklink_log_level {
  RANKLINK_LOG_DEBUG = 0,
  RANKLINK_LOG_INFO = 1,
  RANKLINK_LOG_WARN = 2,
  RANKLINK_LOG_ERROR = 3,
  RANKLINK_LOG_OFF = 4
};

/// Names, as in `op_timeout`, `f32`, `sum`, `all_reduce`, `warn`. Empty for an unknown number.
RANKLINK_API const char* ranklink_status_name(int status);
RANKLINK_API const char* ranklink_data_type_name(int type);
RANKLINK_API const char* ranklink_reduce_op_name(int op);
RANKLINK_API const char* ranklink_collective_name(int collective);
RANKLINK_API const char* ranklink_log_level_name(int level);
/// What an error's number means, in a sentence. Empty for an unknown number.
RANKLINK_API const char* ranklink_status_meaning(int status);
/// Bytes of one element.
RANKLINK_API int ranklink_data_type_size(int type, size_t* bytes, ranklink_error** error);

// ---- Errors. All accessors take NULL: 0, -1 or an empty string. ----

RANKLINK_API int ranklink_error_code(const ranklink_error* error);
/// As in `op_timeout`.
RANKLINK_API const char* ranklink_error_name(const ranklink_error* error);
/// The rank that failed, often another than the one that reports; -1 if no single rank did.
RANKLINK_API int ranklink_error_rank(const ranklink_error* error);
/// The other rank of a pair, or -1.
RANKLINK_API int ranklink_error_peer(const ranklink_error* error);
/// Where in bring-up, or in which operation, it failed.
RANKLINK_API const char* ranklink_error_step(const ranklink_error* error);
/// In the system's own words: call, errno, code.
RANKLINK_API const char* ranklink_error_cause(const ranklink_error* error);
/// What a person can do.
RANKLINK_API const char* ranklink_error_remedy(const ranklink_error* error);
/// What the reporting rank was itself doing or waiting for.
RANKLINK_API const char* ranklink_error_context(const ranklink_error* error);
/// All of it in one line.
RANKLINK_API const char* ranklink_error_message(const ranklink_error* error);
RANKLINK_API void ranklink_error_free(ranklink_error* error);

RANKLINK_API void ranklink_string_free(char* string);

// ---- The log ----

/// Receives one line without its newline. Called from any thread, never from two at once. It must
/// not call ranklink.
typedef void (*ranklink_log_sink)(void* context, int level, const char* line);

/// Sends what the library logs to `sink` instead of standard error; NULL restores that. Once it has
/// returned, the sink before is not called any more.
RANKLINK_API int ranklink_set_log_sink(ranklink_log_sink sink, void* context,
                                       ranklink_error** error);
/// Lines below `level` are dropped.
RANKLINK_API int ranklink_set_log_level(int level, ranklink_error** error);
/// The level of a name, as in `warn`.
RANKLINK_API int ranklink_parse_log_level(const char* name, int* level, ranklink_error** error);

// ---- Joining and leaving ----

#define RANKLINK_UNIQUE_ID_BYTES 256

/// Where the ranks of one group meet, and the secret they know each other by. The program carries
/// it to every rank. Treat it as a secret.
typedef struct ranklink_unique_id {
  unsigned char bytes[RANKLINK_UNIQUE_ID_BYTES];
} ranklink_unique_id;

/// Opens a meeting point in this process and names it. The process must live until all ranks have
/// left the group; any process may make it, most often rank 0. Thread-safe.
RANKLINK_API int ranklink_make_unique_id(ranklink_unique_id* id, ranklink_error** error);

/// A key-value store of the program's. Called by the thread that is in ranklink_join, and by no
/// other. A callback returns 0, or anything else to say that it failed, and need not copy what it
/// is given beyond its return.
typedef struct ranklink_store {
  void* context;  ///< handed to the callbacks
  int (*set)(void* context, const char* key, const void* value, size_t bytes);
  /// Waits up to `timeout_ms` until the key exists, and fails if it doesn't by then. Sets `*bytes`
  /// to the value's size, and copies the value if that is at most `capacity`; if not, it is called
  /// once more with that capacity.
  int (*get)(void* context, const char* key, int64_t timeout_ms, void* value, size_t capacity,
             size_t* bytes);
} ranklink_store;

/// A setting by name, as in {"RANKLINK_MECHANISM", "fd+socket"}.
typedef struct ranklink_setting {
  const char* name;
  const char* value;
} ranklink_setting;

#define RANKLINK_FROM_ENVIRONMENT (-1)

/// How a process joins its group. What is not set here comes from the environment. Begin with
/// RANKLINK_OPTIONS_INIT: later versions add members at the end.
typedef struct ranklink_options {
  size_t struct_size;  ///< sizeof(ranklink_options)
  int rank;            ///< 0 .. size-1, or RANKLINK_FROM_ENVIRONMENT
  int size;            ///< the number of ranks, or RANKLINK_FROM_ENVIRONMENT
  /// At most one of these two isn't NULL; with either, `rank` and `size` should be set.
  const ranklink_unique_id* unique_id;
  const ranklink_store* store;
  const char* store_prefix;          ///< keeps groups in one store apart; NULL: `ranklink`
  const ranklink_setting* settings;  ///< they precede the environment's
  size_t settings_count;
} ranklink_options;

#define RANKLINK_OPTIONS_INIT                                                                   \
  {                                                                                             \
    sizeof(ranklink_options), RANKLINK_FROM_ENVIRONMENT, RANKLINK_FROM_ENVIRONMENT, NULL, NULL, \
        NULL, NULL, 0                                                                           \
  }

/// Brings the group up, or fails on every rank. NULL options: all from the environment. Bounded by
/// RANKLINK_JOIN_TIMEOUT.
RANKLINK_API int ranklink_join(const ranklink_options* options, ranklink_group** group,
                               ranklink_error** error);
/// Leaves the group. Takes part in no group operation and doesn't wait for peers; work that still
/// goes on ends with an error.
RANKLINK_API void ranklink_group_free(ranklink_group* group);

RANKLINK_API int ranklink_group_rank(const ranklink_group* group, int* rank,
                                     ranklink_error** error);
RANKLINK_API int ranklink_group_size(const ranklink_group* group, int* size,
                                     ranklink_error** error);
/// What bring-up found and decided, as JSON; docs/report.md describes it.
RANKLINK_API int ranklink_group_report(const ranklink_group* group, char** json,
                                       ranklink_error** error);
/// Tells all ranks that this one can't go on: their next or present call fails with this rank,
/// `cause` and `remedy` (which may be NULL).
RANKLINK_API int ranklink_group_fail(ranklink_group* group, const char* cause, const char* remedy,
                                     ranklink_error** error);
/// Groups of those that give the same `color`, ranked by `key`, then by rank here. All ranks call
/// it together. `*subgroup` is NULL, and the status RANKLINK_OK, for a negative color.
RANKLINK_API int ranklink_group_split(ranklink_group* group, int color, int key,
                                      ranklink_group** subgroup, ranklink_error** error);

// ---- Collectives ----
//
// All ranks call the same ones in the same order, with the same counts, types and roots. Counts and
// offsets are in elements and may be 0, pointers need no alignment, and may be NULL where no
// element is read or written. Input and output are the same memory or don't overlap at all. Each
// call has a deadline, RANKLINK_OP_TIMEOUT; after an error of any rank the group is good for
// nothing but its rank, size, report and end.
//
// `work` NULL: the call returns when this rank's part is done. Otherwise it is started, goes on by
// itself, and `*work` is a handle to it. Those of one group are done in the order in which they
// were started; a blocking one waits for the earlier ones first.

/// `output` is the reduction of all ranks' `input`: `count` elements each.
RANKLINK_API int ranklink_all_reduce(ranklink_group* group, const void* input, void* output,
                                     size_t count, int type, int op, ranklink_work** work,
                                     ranklink_error** error);
/// `output` is the `count` elements of rank 0, then those of rank 1, and so on. In place where
/// `input` is this rank's part of `output`.
RANKLINK_API int ranklink_all_gather(ranklink_group* group, const void* input, void* output,
                                     size_t count, int type, ranklink_work** work,
                                     ranklink_error** error);
/// `input` is size blocks of `count` elements; `output` the reduction of all ranks' block that has
/// this rank's number. In place where `output` is that block.
RANKLINK_API int ranklink_reduce_scatter(ranklink_group* group, const void* input, void* output,
                                         size_t count, int type, int op, ranklink_work** work,
                                         ranklink_error** error);
/// Copies `data` of `root` to all.
RANKLINK_API int ranklink_broadcast(ranklink_group* group, void* data, size_t count, int type,
                                    int root, ranklink_work** work, ranklink_error** error);
/// As all_reduce, with a result at `root` only; the others' `output` is not used.
RANKLINK_API int ranklink_reduce(ranklink_group* group, const void* input, void* output,
                                 size_t count, int type, int op, int root, ranklink_work** work,
                                 ranklink_error** error);
/// As all_gather, with a result at `root` only.
RANKLINK_API int ranklink_gather(ranklink_group* group, const void* input, void* output,
                                 size_t count, int type, int root, ranklink_work** work,
                                 ranklink_error** error);
/// `output` is the block of `count` elements of `root`'s `input` that has this rank's number. In
/// place where, at root, `output` is that block.
RANKLINK_API int ranklink_scatter(ranklink_group* group, const void* input, void* output,
                                  size_t count, int type, int root, ranklink_work** work,
                                  ranklink_error** error);
/// Block p of `input` (`count` elements) goes to rank p, whose block r of `output` comes from rank
/// r. In place where they are the same.
RANKLINK_API int ranklink_all_to_all(ranklink_group* group, const void* input, void* output,
                                     size_t count, int type, ranklink_work** work,
                                     ranklink_error** error);
/// As all_to_all, with a count and an offset for each rank: arrays of size numbers. What a rank
/// receives of a peer is what that peer sends it. Not in place.
RANKLINK_API int ranklink_all_to_all_v(ranklink_group* group, const void* input,
                                       const size_t* send_counts, const size_t* send_offsets,
                                       void* output, const size_t* recv_counts,
                                       const size_t* recv_offsets, int type, ranklink_work** work,
                                       ranklink_error** error);
/// Ends when `data` may be used again; a large one waits until it is received. Messages between two
/// ranks arrive in order.
RANKLINK_API int ranklink_send(ranklink_group* group, const void* data, size_t count, int type,
                               int to, ranklink_work** work, ranklink_error** error);
/// Receives exactly `count` elements.
RANKLINK_API int ranklink_recv(ranklink_group* group, void* data, size_t count, int type, int from,
                               ranklink_work** work, ranklink_error** error);

enum ranklink_transfer_kind { RANKLINK_SEND = 0, RANKLINK_RECV = 1 };

/// One message: to `peer`, or from it.
typedef struct ranklink_transfer {
  int kind;  ///< RANKLINK_SEND or RANKLINK_RECV
  int peer;
  void* data;  ///< only read by a send
  size_t bytes;
} ranklink_transfer;

/// All of these `count` sends and receives together: none waits for another, but those with one
/// peer in one direction, which keep their order.
RANKLINK_API int ranklink_exchange(ranklink_group* group, const ranklink_transfer* transfers,
                                   size_t count, ranklink_work** work, ranklink_error** error);
/// Ends when all ranks have called it.
RANKLINK_API int ranklink_barrier(ranklink_group* group, ranklink_work** work,
                                  ranklink_error** error);

// ---- Work that was started ----

/// Whether it has ended, well or not (0 or 1). Never waits.
RANKLINK_API int ranklink_work_done(const ranklink_work* work, int* done, ranklink_error** error);
/// Returns when it has ended; fails with its error if it failed.
RANKLINK_API int ranklink_work_wait(const ranklink_work* work, ranklink_error** error);
/// As wait, for at most `timeout_ms`: `*done` is 0 if it hasn't ended by then. It goes on then.
RANKLINK_API int ranklink_work_wait_for(const ranklink_work* work, int64_t timeout_ms, int* done,
                                        ranklink_error** error);
/// Why it failed, the caller's to free; NULL while it goes on, or if it ended well.
RANKLINK_API int ranklink_work_error(const ranklink_work* work, ranklink_error** failure,
                                     ranklink_error** error);
/// Gives the handle back. Doesn't stop the work.
RANKLINK_API void ranklink_work_free(ranklink_work* work);

// ---- Memory that the ranks have mapped into each other ----

/// Memory of `bytes` bytes on every rank that the others can read and write, zeroed. All ranks call
/// it together. It may outlive its group.
RANKLINK_API int ranklink_make_shared_buffer(ranklink_group* group, size_t bytes,
                                             ranklink_shared_buffer** buffer,
                                             ranklink_error** error);
/// Makes `memory`, of the same size on all ranks, a shared buffer in place: its contents stay. It
/// must be whole pages of private memory, which no thread uses meanwhile and no other registration
/// covers. When the buffer is freed it is private again, with its contents. Memory that can't be
/// shared so gives RANKLINK_ERROR_bad_argument.
RANKLINK_API int ranklink_register_memory(ranklink_group* group, void* memory, size_t bytes,
                                          ranklink_shared_buffer** buffer, ranklink_error** error);
/// Bytes of each rank's memory.
RANKLINK_API int ranklink_shared_buffer_size(const ranklink_shared_buffer* buffer, size_t* bytes,
                                             ranklink_error** error);
/// This rank's own memory.
RANKLINK_API int ranklink_shared_buffer_local(const ranklink_shared_buffer* buffer, void** memory,
                                              ranklink_error** error);
/// The memory of `rank` as mapped here; NULL when the route to it isn't `mapped`. After a barrier,
/// what was written before it can be read.
RANKLINK_API int ranklink_shared_buffer_peer(const ranklink_shared_buffer* buffer, int rank,
                                             void** memory, ranklink_error** error);
/// Ends this rank's use of all ranks' memory of it.
RANKLINK_API void ranklink_shared_buffer_free(ranklink_shared_buffer* buffer);

// Collectives on a shared buffer of the group, in place. `offset` is in bytes. They end when all
// ranks have their result; the memory is not to be touched, nor the buffer freed, meanwhile.

RANKLINK_API int ranklink_all_reduce_shared(ranklink_group* group, ranklink_shared_buffer* buffer,
                                            size_t count, int type, int op, size_t offset,
                                            ranklink_work** work, ranklink_error** error);
/// Each rank's part of `count` elements stands at its place of the result.
RANKLINK_API int ranklink_all_gather_shared(ranklink_group* group, ranklink_shared_buffer* buffer,
                                            size_t count, int type, size_t offset,
                                            ranklink_work** work, ranklink_error** error);
/// The result of `count` elements is the rank's own block; the other blocks hold nothing of use.
RANKLINK_API int ranklink_reduce_scatter_shared(ranklink_group* group,
                                                ranklink_shared_buffer* buffer, size_t count,
                                                int type, int op, size_t offset,
                                                ranklink_work** work, ranklink_error** error);
RANKLINK_API int ranklink_broadcast_shared(ranklink_group* group, ranklink_shared_buffer* buffer,
                                           size_t count, int type, int root, size_t offset,
                                           ranklink_work** work, ranklink_error** error);
RANKLINK_API int ranklink_all_to_all_shared(ranklink_group* group, ranklink_shared_buffer* buffer,
                                            size_t count, int type, size_t offset,
                                            ranklink_work** work, ranklink_error** error);

#ifdef __cplusplus
}  // extern "C"
#endif
