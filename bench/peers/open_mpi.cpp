// Open MPI's rank of scripts/bench-peers.

#include <mpi.h>

#include "driver.h"

namespace {

using bench_peers::kRoot;
using bench_peers::Operation;

class OpenMpi : public bench_peers::Library {
 public:
  OpenMpi(int* argc, char*** argv) {
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  ~OpenMpi() override { MPI_Finalize(); }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string version() const override {
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    MPI_Get_library_version(text, &length);
    const std::string all(text, static_cast<std::size_t>(length));
    return all.substr(0, all.find(','));
  }

  // Errors end the job, as is MPI's default; the script sees it.
  std::function<void()> prepare(const Operation& operation) override {
    const std::string& name = operation.collective;
    const int count = static_cast<int>(operation.count);
    float* const in = operation.input;
    float* const out = operation.output;
    const MPI_Comm world = MPI_COMM_WORLD;
    if (!operation.variant.empty()) return {};
    if (name == "all_reduce") {
      return [=] { MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, world); };
    }
    if (name == "all_gather") {
      return [=] { MPI_Allgather(in, count, MPI_FLOAT, out, count, MPI_FLOAT, world); };
    }
    if (name == "reduce_scatter") {
      return [=] { MPI_Reduce_scatter_block(in, out, count, MPI_FLOAT, MPI_SUM, world); };
    }
    if (name == "broadcast") {
      return [=] { MPI_Bcast(out, count, MPI_FLOAT, kRoot, world); };
    }
    if (name == "reduce") {
      return [=] { MPI_Reduce(in, out, count, MPI_FLOAT, MPI_SUM, kRoot, world); };
    }
    if (name == "gather") {
      return [=] { MPI_Gather(in, count, MPI_FLOAT, out, count, MPI_FLOAT, kRoot, world); };
    }
    if (name == "scatter") {
      return [=] { MPI_Scatter(in, count, MPI_FLOAT, out, count, MPI_FLOAT, kRoot, world); };
    }
    if (name == "all_to_all") {
      return [=] { MPI_Alltoall(in, count, MPI_FLOAT, out, count, MPI_FLOAT, world); };
    }
    if (name == "barrier") {
      return [=] { MPI_Barrier(world); };
    }
    if (name == "send_recv" && rank_ == 0) {
      return [=] {
        MPI_Send(in, count, MPI_FLOAT, 1, 0, world);
        MPI_Recv(out, count, MPI_FLOAT, 1, 0, world, MPI_STATUS_IGNORE);
      };
    }
    if (name == "send_recv") {
      return [=] {
        MPI_Recv(out, count, MPI_FLOAT, 0, 0, world, MPI_STATUS_IGNORE);
        MPI_Send(in, count, MPI_FLOAT, 0, 0, world);
      };
    }
    return {};
  }

 private:
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace

int main(int argc, char** argv) {
  return bench_peers::run_driver(argc, argv, [](int& count, char**& words) {
    return std::make_unique<OpenMpi>(&count, &words);
  });
}
