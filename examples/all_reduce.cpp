// Sums 256 floats over all ranks: ranklink run -n 4 -- ./all_reduce
#include <cstddef>
#include <cstdio>
#include <ranklink/ranklink.hpp>
#include <vector>

int main() {
  try {
    ranklink::Group group = ranklink::Group::join();

    std::vector<float> data(256);
    for (std::size_t i = 0; i < data.size(); ++i) {
      data[i] = static_cast<float>(i) * static_cast<float>(group.rank() + 1);
    }
    group.all_reduce(data);

    if (group.rank() == 0) {
      std::printf("sum over %d ranks: [1] = %g, [255] = %g\n", group.size(), data[1], data[255]);
    }
  } catch (const ranklink::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
