// ranklink's rank of scripts/bench-peers: plain user pointers, and SharedBuffers as the variant
// `shared`, which are in place.

#include <optional>
#include <ranklink/ranklink.hpp>

#include "driver.h"

namespace {

using bench_peers::kRoot;
using bench_peers::Operation;
using ranklink::DataType;
using ranklink::ReduceOp;

constexpr DataType kType = DataType::f32;

class Ours : public bench_peers::Library {
 public:
  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  std::string version() const override { return "ranklink"; }  // The script asks git.

  std::function<void()> prepare(const Operation& operation) override {
    const std::string& name = operation.collective;
    const std::size_t count = operation.count;
    ranklink::Group& group = group_;
    if (operation.variant == "shared") return prepare_shared(operation);
    if (!operation.variant.empty()) return {};
    float* const in = operation.input;
    float* const out = operation.output;
    if (name == "all_reduce") return [=, &group] { group.all_reduce(in, out, count, kType); };
    if (name == "all_gather") return [=, &group] { group.all_gather(in, out, count, kType); };
    if (name == "reduce_scatter") {
      return [=, &group] { group.reduce_scatter(in, out, count, kType); };
    }
    if (name == "broadcast") return [=, &group] { group.broadcast(out, count, kType, kRoot); };
    if (name == "reduce") {
      return [=, &group] { group.reduce(in, out, count, kType, ReduceOp::sum, kRoot); };
    }
    if (name == "gather") return [=, &group] { group.gather(in, out, count, kType, kRoot); };
    if (name == "scatter") return [=, &group] { group.scatter(in, out, count, kType, kRoot); };
    if (name == "all_to_all") return [=, &group] { group.all_to_all(in, out, count, kType); };
    if (name == "barrier") return [&group] { group.barrier(); };
    if (name == "send_recv" && rank() == 0) {
      return [=, &group] {
        group.send(in, count, kType, 1);
        group.recv(out, count, kType, 1);
      };
    }
    if (name == "send_recv") {
      return [=, &group] {
        group.recv(out, count, kType, 0);
        group.send(in, count, kType, 0);
      };
    }
    return {};
  }

  float* input_of(const Operation& operation) override {
    if (operation.variant != "shared") return operation.input;
    return shared_at(operation, operation.collective == "all_gather");
  }

  float* output_of(const Operation& operation) override {
    if (operation.variant != "shared") return operation.output;
    return shared_at(operation, operation.collective == "reduce_scatter");
  }

 private:
  std::function<void()> prepare_shared(const Operation& operation) {
    const std::string& name = operation.collective;
    const std::size_t count = operation.count;
    ranklink::Group& group = group_;
    ranklink::SharedBuffer& memory = shared(operation);
    if (name == "all_reduce")
      return [=, &group, &memory] { group.all_reduce(memory, count, kType); };
    if (name == "all_gather")
      return [=, &group, &memory] { group.all_gather(memory, count, kType); };
    if (name == "reduce_scatter") {
      return [=, &group, &memory] { group.reduce_scatter(memory, count, kType); };
    }
    if (name == "broadcast") {
      return [=, &group, &memory] { group.broadcast(memory, count, kType, kRoot); };
    }
    if (name == "all_to_all")
      return [=, &group, &memory] { group.all_to_all(memory, count, kType); };
    return {};
  }

  // In the shared memory; of the rank's own block if `own`.
  float* shared_at(const Operation& operation, bool own) {
    auto* const start = reinterpret_cast<float*>(shared(operation).local().data());
    return start + (own ? static_cast<std::size_t>(rank()) * operation.count : 0);
  }

  // Made when first asked for, by all ranks together, since all do the same commands.
  ranklink::SharedBuffer& shared(const Operation& operation) {
    if (!shared_) shared_.emplace(group_.make_shared_buffer(operation.capacity));
    return *shared_;
  }

  ranklink::Group group_ = ranklink::Group::join();
  std::optional<ranklink::SharedBuffer> shared_;
};

}  // namespace

int main(int argc, char** argv) {
  return bench_peers::run_driver(argc, argv, [](int, char**) { return std::make_unique<Ours>(); });
}
