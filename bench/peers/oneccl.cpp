// oneCCL's rank of scripts/bench-peers, on the processor.

#include <fstream>
#include <iterator>
#include <oneapi/ccl.hpp>
#include <thread>

#include "driver.h"

namespace {

using bench_peers::kRoot;
using bench_peers::Operation;

// Rank 0 makes the address where oneCCL's ranks meet; a file carries it to the others.
ccl::shared_ptr_class<ccl::kvs> meet(const std::string& directory, int rank) {
  const std::string path = directory + "/kvs";
  if (rank == 0) {
    auto kvs = ccl::create_main_kvs();
    const ccl::kvs::address_type address = kvs->get_address();
    std::ofstream(path + ".new", std::ios::binary).write(address.data(), address.size());
    if (std::rename((path + ".new").c_str(), path.c_str()) != 0) {
      throw std::runtime_error("can't write " + path);
    }
    return kvs;
  }
  for (;;) {  // until the alarm of the start, at worst
    ccl::kvs::address_type address;
    std::ifstream file(path, std::ios::binary);
    if (file.read(address.data(), address.size())) return ccl::create_kvs(address);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

class OneCcl : public bench_peers::Library {
 public:
  OneCcl(const std::string& directory, int rank, int size) {
    ccl::init();
    kvs_ = meet(directory, rank);
    communicator_ = std::make_unique<ccl::communicator>(ccl::create_communicator(size, rank, kvs_));
  }

  int rank() const override { return communicator_->rank(); }
  int size() const override { return communicator_->size(); }
  std::string version() const override {
    const ccl::library_version version = ccl::get_library_version();
    return "oneCCL " + std::to_string(version.major) + "." + std::to_string(version.minor) + "." +
           std::to_string(version.update);
  }

  std::function<void()> prepare(const Operation& operation) override {
    const std::string& name = operation.collective;
    const std::size_t count = operation.count;
    const void* const in = operation.input;
    void* const out = operation.output;
    const ccl::communicator& world = *communicator_;
    const ccl::datatype type = ccl::datatype::float32;
    const ccl::reduction sum = ccl::reduction::sum;
    if (!operation.variant.empty()) return {};
    if (name == "all_reduce") {
      return [=, &world, attr = cached<ccl::allreduce_attr>(operation)] {
        ccl::allreduce(in, out, count, type, sum, world, attr).wait();
      };
    }
    if (name == "all_gather") {
      return [=, &world, attr = cached<ccl::allgather_attr>(operation)] {
        ccl::allgather(in, out, count, type, world, attr).wait();
      };
    }
    if (name == "reduce_scatter") {
      return [=, &world, attr = cached<ccl::reduce_scatter_attr>(operation)] {
        ccl::reduce_scatter(in, out, count, type, sum, world, attr).wait();
      };
    }
    if (name == "broadcast") {
      return [=, &world, attr = cached<ccl::broadcast_attr>(operation)] {
        ccl::broadcast(out, count, type, kRoot, world, attr).wait();
      };
    }
    if (name == "reduce") {
      return [=, &world, attr = cached<ccl::reduce_attr>(operation)] {
        ccl::reduce(in, out, count, type, sum, kRoot, world, attr).wait();
      };
    }
    if (name == "all_to_all") {
      return [=, &world, attr = cached<ccl::alltoall_attr>(operation)] {
        ccl::alltoall(in, out, count, type, world, attr).wait();
      };
    }
    if (name == "barrier") {
      return [&world] { ccl::barrier(world).wait(); };
    }
    if (name == "send_recv") {
      const int peer = 1 - rank();
      float* const data = operation.input;  // send() takes no const data
      return [=, &world, first = rank() == 0] {
        if (first) ccl::send(data, count, type, peer, world).wait();
        ccl::recv(out, count, type, peer, world).wait();
        if (!first) ccl::send(data, count, type, peer, world).wait();
      };
    }
    return {};
  }

 private:
  // Lets oneCCL plan an operation once for all of its calls, as its own benchmark does.
  template <typename Attribute>
  Attribute cached(const Operation& operation) {
    auto attribute = ccl::create_operation_attr<Attribute>();
    const std::string name = operation.collective + "/" + std::to_string(operation.count);
    attribute.template set<ccl::operation_attr_id::match_id>(ccl::string_class(name));
    attribute.template set<ccl::operation_attr_id::to_cache>(true);
    return attribute;
  }

  ccl::shared_ptr_class<ccl::kvs> kvs_;
  std::unique_ptr<ccl::communicator> communicator_;
};

int number(const char* name) {
  const char* text = std::getenv(name);
  if (!text) throw std::runtime_error(std::string(name) + " is not set: start it by mpiexec");
  return std::atoi(text);
}

}  // namespace

int main(int argc, char** argv) {
  return bench_peers::run_driver(argc, argv, [](int count, char** words) {
    // Of its own launcher, unless given: then oneCCL runs without MPI.
    const bool given = count >= 5;
    return std::make_unique<OneCcl>(words[1], given ? std::atoi(words[3]) : number("PMI_RANK"),
                                    given ? std::atoi(words[4]) : number("PMI_SIZE"));
  });
}
