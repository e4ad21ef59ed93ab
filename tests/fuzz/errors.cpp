// Errors as they come from other ranks.

#include "base/error_codec.h"
#include "driver/driver.h"

namespace ranklink {

void fuzz(ByteView input) {
  Reader reader(input);
  const Error error = decode_error(reader);
  require(error.what() != nullptr && !name_of(error.code()).empty());
  for (const std::size_t limit : {std::size_t{400}, std::size_t{16'384}}) {
    Writer w;
    encode(error, w, limit);
    Reader again(w.bytes());
    require(decode_error(again).code() == error.code());
    again.end();
    require(limit != 400 || w.bytes().size() <= 1792);  // its place on the control page
  }
}

std::vector<Bytes> seeds() {
  Writer w;
  encode(Error({.code = ErrorCode::rank_failed,
                .rank = 1,
                .peer = 2,
                .step = "try",
                .cause = "out of luck",
                .remedy = "have some",
                .context = "rank 0 waited"}),
         w);
  return {w.bytes()};
}

}  // namespace ranklink
