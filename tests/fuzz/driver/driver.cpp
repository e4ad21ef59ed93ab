#include "driver.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/log.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max);

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  ranklink::set_log_level(ranklink::LogLevel::off);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    ranklink::fuzz({reinterpret_cast<const std::byte*>(data), size});
  } catch (const ranklink::Error&) {
  }
  return 0;
}

// Goes back to a seed now and then, so that no files of them are needed.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max, unsigned int random) {
  static const std::vector<ranklink::Bytes> kSeeds = ranklink::seeds();
  if (!kSeeds.empty() && (size < 2 || random % 32 == 0)) {
    const ranklink::Bytes& seed = kSeeds[random / 32 % kSeeds.size()];
    size = std::min(seed.size(), max);
    std::memcpy(data, seed.data(), size);
  }
  return LLVMFuzzerMutate(data, size, max);
}
