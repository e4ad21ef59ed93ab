// Gloo's rank of scripts/bench-peers. Its only transport for host memory is TCP, here over
// loopback.

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>

#include "driver.h"

namespace {

using bench_peers::kRoot;
using bench_peers::Operation;

class Gloo : public bench_peers::Library {
 public:
  Gloo(const std::string& directory, int rank, int size) {
    gloo::rendezvous::FileStore store(directory);
    auto device = gloo::transport::tcp::CreateDevice("127.0.0.1");
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
    context->connectFullMesh(store, device);
    context_ = context;
  }

  int rank() const override { return context_->rank; }
  int size() const override { return context_->size; }
  std::string version() const override { return "Gloo"; }  // It has none; the script asks dpkg.

  // Options are made once and used for all calls, as Gloo's own benchmark does.
  std::function<void()> prepare(const Operation& operation) override {
    const std::string& name = operation.collective;
    const std::size_t count = operation.count;
    const std::size_t all = count * static_cast<std::size_t>(size());
    float* const in = operation.input;
    float* const out = operation.output;
    const bool root = rank() == kRoot;
    if (name == "all_reduce") return all_reduce(operation);
    if (!operation.variant.empty()) return {};
    if (name == "all_gather") {
      auto options = std::make_shared<gloo::AllgatherOptions>(context_);
      options->setInput(in, count);
      options->setOutput(out, all);
      return [options] { gloo::allgather(*options); };
    }
    if (name == "reduce_scatter") {
      // Gloo has it in place only: the result replaces the first elements of the input. The output
      // buffer, which is as large, is where that happens.
      std::memcpy(out, in, all * sizeof(float));
      auto algorithm = std::make_shared<gloo::ReduceScatterHalvingDoubling<float>>(
          context_, std::vector<float*>{out}, static_cast<int>(all),
          std::vector<int>(static_cast<std::size_t>(size()), static_cast<int>(count)));
      return [algorithm] { algorithm->run(); };
    }
    if (name == "broadcast") {
      auto options = std::make_shared<gloo::BroadcastOptions>(context_);
      options->setOutput(out, count);
      options->setRoot(kRoot);
      return [options] { gloo::broadcast(*options); };
    }
    if (name == "reduce") {
      auto options = std::make_shared<gloo::ReduceOptions>(context_);
      options->setInput(in, count);
      options->setOutput(out, count);
      options->setReduceFunction(sum());
      options->setRoot(kRoot);
      return [options] { gloo::reduce(*options); };
    }
    if (name == "gather") {
      auto options = std::make_shared<gloo::GatherOptions>(context_);
      options->setInput(in, count);
      if (root) options->setOutput(out, all);
      options->setRoot(kRoot);
      return [options] { gloo::gather(*options); };
    }
    if (name == "scatter") {
      auto options = std::make_shared<gloo::ScatterOptions>(context_);
      if (root) {
        std::vector<float*> blocks;
        for (int r = 0; r < size(); ++r) blocks.push_back(in + static_cast<std::size_t>(r) * count);
        options->setInputs(blocks, count);
      }
      options->setOutput(out, count);
      options->setRoot(kRoot);
      return [options] { gloo::scatter(*options); };
    }
    if (name == "all_to_all") {
      auto options = std::make_shared<gloo::AlltoallOptions>(context_);
      options->setInput(in, all);
      options->setOutput(out, all);
      return [options] { gloo::alltoall(*options); };
    }
    if (name == "barrier") {
      auto options = std::make_shared<gloo::BarrierOptions>(context_);
      return [options] { gloo::barrier(*options); };
    }
    if (name == "send_recv") {
      std::shared_ptr<Buffer> sent = context_->createUnboundBuffer(in, count * sizeof(float));
      std::shared_ptr<Buffer> received = context_->createUnboundBuffer(out, count * sizeof(float));
      constexpr std::uint64_t kSlot = 1 << 20;  // none that a collective uses
      const int peer = 1 - rank();
      return [=, first = rank() == 0] {
        if (first) {
          sent->send(peer, kSlot);
          sent->waitSend();
        }
        received->recv(peer, kSlot);
        received->waitRecv();
        if (!first) {
          sent->send(peer, kSlot);
          sent->waitSend();
        }
      };
    }
    return {};
  }

 private:
  using Buffer = gloo::transport::UnboundBuffer;

  // Gloo's own function; it is a template, so compiled here, with vector instructions.
  static gloo::AllreduceOptions::Func sum() {
    return static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&gloo::sum<float>);
  }

  std::function<void()> all_reduce(const Operation& operation) {
    float* const out = operation.output;
    if (operation.variant == "halving_doubling") {
      // An older interface, in place only.
      std::memcpy(out, operation.input, operation.count * sizeof(float));
      auto algorithm = std::make_shared<gloo::AllreduceHalvingDoubling<float>>(
          context_, std::vector<float*>{out}, static_cast<int>(operation.count));
      return [algorithm] { algorithm->run(); };
    }
    auto options = std::make_shared<gloo::AllreduceOptions>(context_);
    options->setInput(operation.input, operation.count);
    options->setOutput(out, operation.count);
    options->setReduceFunction(sum());
    using Algorithm = gloo::detail::AllreduceOptionsImpl::Algorithm;
    options->setAlgorithm(operation.variant == "bcube" ? Algorithm::BCUBE : Algorithm::RING);
    return [options] { gloo::allreduce(*options); };
  }

  std::shared_ptr<gloo::Context> context_;
};

}  // namespace

int main(int argc, char** argv) {
  return bench_peers::run_driver(argc, argv, [](int count, char** words) {
    if (count < 5) throw std::invalid_argument("usage: gloo DIRECTORY BYTES RANK SIZE");
    return std::make_unique<Gloo>(words[1], std::atoi(words[3]), std::atoi(words[4]));
  });
}
