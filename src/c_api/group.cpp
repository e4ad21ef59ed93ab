#include "ranklink/group.hpp"

#include <cstring>
#include <new>
#include <utility>

#include "c_api/guard.h"
#include "c_api/handles.h"

using namespace ranklink::c_api;

int ranklink_group_rank(const ranklink_group* group, int* rank, ranklink_error** error) {
  return guarded(__func__, error, [&] { need(rank, "rank") = need(group, "group").group.rank(); });
}

int ranklink_group_size(const ranklink_group* group, int* size, ranklink_error** error) {
  return guarded(__func__, error, [&] { need(size, "size") = need(group, "group").group.size(); });
}

int ranklink_group_report(const ranklink_group* group, char** json, ranklink_error** error) {
  return guarded(__func__, error, [&] {
    need(json, "json") = nullptr;
    *json = ::strdup(need(group, "group").group.report().to_json().c_str());
    if (*json == nullptr) throw std::bad_alloc();
  });
}

int ranklink_group_fail(ranklink_group* group, const char* cause, const char* remedy,
                        ranklink_error** error) {
  return guarded(__func__, error, [&] {
    need(group, "group").group.fail(&need(cause, "cause"), remedy == nullptr ? "" : remedy);
  });
}

int ranklink_group_split(ranklink_group* group, int color, int key, ranklink_group** subgroup,
                         ranklink_error** error) {
  return guarded(__func__, error, [&] {
    need(subgroup, "subgroup") = nullptr;
    auto made = need(group, "group").group.split(color, key);
    if (made) *subgroup = new ranklink_group{std::move(*made)};
  });
}

int ranklink_make_shared_buffer(ranklink_group* group, size_t bytes,
                                ranklink_shared_buffer** buffer, ranklink_error** error) {
  return guarded(__func__, error, [&] {
    need(buffer, "buffer") = nullptr;
    *buffer = new ranklink_shared_buffer{need(group, "group").group.make_shared_buffer(bytes)};
  });
}

int ranklink_register_memory(ranklink_group* group, void* memory, size_t bytes,
                             ranklink_shared_buffer** buffer, ranklink_error** error) {
  return guarded(__func__, error, [&] {
    need(buffer, "buffer") = nullptr;
    auto* first = &need(static_cast<std::byte*>(memory), "memory");
    *buffer =
        new ranklink_shared_buffer{need(group, "group").group.register_memory({first, bytes})};
  });
}

int ranklink_shared_buffer_size(const ranklink_shared_buffer* buffer, size_t* bytes,
                                ranklink_error** error) {
  return guarded(__func__, error,
                 [&] { need(bytes, "bytes") = need(buffer, "buffer").buffer.local().size(); });
}

int ranklink_shared_buffer_local(const ranklink_shared_buffer* buffer, void** memory,
                                 ranklink_error** error) {
  return guarded(__func__, error,
                 [&] { need(memory, "memory") = need(buffer, "buffer").buffer.local().data(); });
}

int ranklink_shared_buffer_peer(const ranklink_shared_buffer* buffer, int rank, void** memory,
                                ranklink_error** error) {
  return guarded(__func__, error,
                 [&] { need(memory, "memory") = need(buffer, "buffer").buffer.peer(rank).data(); });
}

void ranklink_shared_buffer_free(ranklink_shared_buffer* buffer) { delete buffer; }
