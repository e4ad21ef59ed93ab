#include <fmt/format.h>

#include <memory>
#include <span>
#include <vector>

#include "c_api/guard.h"
#include "c_api/handles.h"
#include "c_api/numbers.h"
#include "ranklink/collective.hpp"

using namespace ranklink::c_api;
using ranklink::Call;
using ranklink::Collective;
using ranklink::Transfer;

namespace {

// What `make_call` gives is run, or started if the caller takes a work.
template <typename MakeCall>
int collective(const char* function, ranklink_group* group, ranklink_work** work,
               ranklink_error** error, const MakeCall& make_call) {
  if (work != nullptr) *work = nullptr;
  return guarded(function, error, [&] {
    ranklink::Group& in = need(group, "group").group;
    const Call call = make_call();
    if (work == nullptr) return in.run(call);
    auto handle = std::make_unique<ranklink_work>();  // first: what is started can't be taken back
    handle->work.emplace(in.start(call));
    *work = handle.release();
  });
}

// A single send or recv.
int message(const char* function, ranklink_group* group, Transfer::Kind kind, int peer, void* data,
            std::size_t count, int type, ranklink_work** work, ranklink_error** error) {
  Transfer transfer{kind, peer, data, 0};
  return collective(function, group, work, error, [&] {
    if (__builtin_mul_overflow(count, size_of(to_data_type(type)), &transfer.bytes)) {
      throw bad_argument(fmt::format("{} elements are more than memory holds", count),
                         "give the number of elements");
    }
    return Call{.collective = Collective::exchange, .count = 1, .transfers = &transfer};
  });
}

}  // namespace

int ranklink_all_reduce(ranklink_group* group, const void* input, void* output, size_t count,
                        int type, int op, ranklink_work** work, ranklink_error** error) {
  return collective(__func__, group, work, error, [&] {
    return Call{Collective::all_reduce, input, output, count, to_data_type(type), to_reduce_op(op)};
  });
}

int ranklink_all_gather(ranklink_group* group, const void* input, void* output, size_t count,
                        int type, ranklink_work** work, ranklink_error** error) {
  return collective(__func__, group, work, error, [&] {
    return Call{Collective::all_gather, input, output, count, to_data_type(type)};
  });
}

int ranklink_reduce_scatter(ranklink_group* group, const void* input, void* output, size_t count,
                            int type, int op, ranklink_work** work, ranklink_error** error) {
  return collective(__func__, group, work, error, [&] {
    return Call{Collective::reduce_scatter, input,           output, count,
                to_data_type(type),         to_reduce_op(op)};
  });
}

int ranklink_broadcast(ranklink_group* group, void* data, size_t count, int type, int root,
                       ranklink_work** work, ranklink_error** error) {
  return collective(__func__, group, work, error, [&] {
    return Call{.collective = Collective::broadcast,
                .input = data,
                .output = data,
                .count = count,
                .type = to_data_type(type),
                .root = root};
  });
}

int ranklink_reduce(ranklink_group* group, const void* input, void* output, size_t count, int type,
                    int op, int root, ranklink_work** work, ranklink_error** error) {
  return collective(__func__, group, work, error, [&] {
    return Call{.collective = Collective::reduce,
                .input = input,
                .output = output,
                .count = count,
                .type = to_data_type(type),
                .op = to_reduce_op(op),
                .root = root};
  });
}

int ranklink_gather(ranklink_group* group, const void* input, void* output, size_t count, int type,
                    int root, ranklink_work** work, ranklink_error** error) {
  return collective(__func__, group, work, error, [&] {
    return Call{.collective = Collective::gather,
                .input = input,
                .output = output,
                .count = count,
                .type = to_data_type(type),
                .root = root};
  });
}

int ranklink_scatter(ranklink_group* group, const void* input, void* output, size_t count, int type,
                     int root, ranklink_work** work, ranklink_error** error) {
  return collective(__func__, group, work, error, [&] {
    return Call{.collective = Collective::scatter,
                .input = input,
                .output = output,
                .count = count,
                .type = to_data_type(type),
                .root = root};
  });
}

int ranklink_all_to_all(ranklink_group* group, const void* input, void* output, size_t count,
                        int type, ranklink_work** work, ranklink_error** error) {
  return collective(__func__, group, work, error, [&] {
    return Call{Collective::all_to_all, input, output, count, to_data_type(type)};
  });
}

int ranklink_all_to_all_v(ranklink_group* group, const void* input, const size_t* send_counts,
                          const size_t* send_offsets, void* output, const size_t* recv_counts,
                          const size_t* recv_offsets, int type, ranklink_work** work,
                          ranklink_error** error) {
  return collective(__func__, group, work, error, [&] {
    return Call{.collective = Collective::all_to_all_v,
                .input = input,
                .output = output,
                .type = to_data_type(type),
                .send_counts = send_counts,
                .send_offsets = send_offsets,
                .recv_counts = recv_counts,
                .recv_offsets = recv_offsets};
  });
}

int ranklink_send(ranklink_group* group, const void* data, size_t count, int type, int to,
                  ranklink_work** work, ranklink_error** error) {
  return message(__func__, group, Transfer::Kind::send, to, const_cast<void*>(data), count, type,
                 work, error);
}

int ranklink_recv(ranklink_group* group, void* data, size_t count, int type, int from,
                  ranklink_work** work, ranklink_error** error) {
  return message(__func__, group, Transfer::Kind::recv, from, data, count, type, work, error);
}

int ranklink_exchange(ranklink_group* group, const ranklink_transfer* transfers, size_t count,
                      ranklink_work** work, ranklink_error** error) {
  std::vector<Transfer> all;
  return collective(__func__, group, work, error, [&] {
    if (count != 0) refuse_null(transfers, "transfers");
    for (const ranklink_transfer& transfer : std::span(transfers, count)) {
      all.push_back(
          {to_transfer_kind(transfer.kind), transfer.peer, transfer.data, transfer.bytes});
    }
    return Call{.collective = Collective::exchange, .count = all.size(), .transfers = all.data()};
  });
}

int ranklink_barrier(ranklink_group* group, ranklink_work** work, ranklink_error** error) {
  return collective(__func__, group, work, error,
                    [&] { return Call{.collective = Collective::barrier}; });
}

int ranklink_all_reduce_shared(ranklink_group* group, ranklink_shared_buffer* buffer, size_t count,
                               int type, int op, size_t offset, ranklink_work** work,
                               ranklink_error** error) {
  return collective(__func__, group, work, error, [&] {
    return Call{.collective = Collective::all_reduce,
                .count = count,
                .type = to_data_type(type),
                .op = to_reduce_op(op),
                .shared = &need(buffer, "buffer").buffer,
                .shared_offset = offset};
  });
}

int ranklink_all_gather_shared(ranklink_group* group, ranklink_shared_buffer* buffer, size_t count,
                               int type, size_t offset, ranklink_work** work,
                               ranklink_error** error) {
  return collective(__func__, group, work, error, [&] {
    return Call{.collective = Collective::all_gather,
                .count = count,
                .type = to_data_type(type),
                .shared = &need(buffer, "buffer").buffer,
                .shared_offset = offset};
  });
}

int ranklink_reduce_scatter_shared(ranklink_group* group, ranklink_shared_buffer* buffer,
                                   size_t count, int type, int op, size_t offset,
                                   ranklink_work** work, ranklink_error** error) {
  return collective(__func__, group, work, error, [&] {
    return Call{.collective = Collective::reduce_scatter,
                .count = count,
                .type = to_data_type(type),
                .op = to_reduce_op(op),
                .shared = &need(buffer, "buffer").buffer,
                .shared_offset = offset};
  });
}

int ranklink_broadcast_shared(ranklink_group* group, ranklink_shared_buffer* buffer, size_t count,
                              int type, int root, size_t offset, ranklink_work** work,
                              ranklink_error** error) {
  return collective(__func__, group, work, error, [&] {
    return Call{.collective = Collective::broadcast,
                .count = count,
                .type = to_data_type(type),
                .root = root,
                .shared = &need(buffer, "buffer").buffer,
                .shared_offset = offset};
  });
}

int ranklink_all_to_all_shared(ranklink_group* group, ranklink_shared_buffer* buffer, size_t count,
                               int type, size_t offset, ranklink_work** work,
                               ranklink_error** error) {
  return collective(__func__, group, work, error, [&] {
    return Call{.collective = Collective::all_to_all,
                .count = count,
                .type = to_data_type(type),
                .shared = &need(buffer, "buffer").buffer,
                .shared_offset = offset};
  });
}
