// Unique ids and rendezvous files, which anybody may have written.

#include "driver/driver.h"
#include "rendezvous/meeting_point.h"

namespace ranklink {

void fuzz(ByteView input) {
  if (input.empty()) return;
  const ByteView rest = input.subspan(1);
  if (input[0] == std::byte{0}) {
    const MeetingPoint point = MeetingPoint::decode(rest);
    const MeetingPoint again = MeetingPoint::decode(point.encode(1 << 20));
    require(again.endpoints == point.endpoints);
    require(point.encode(256).size() <= 256);
    return;
  }
  const std::string_view text(reinterpret_cast<const char*>(rest.data()), rest.size());
  const MeetingFile file = MeetingFile::parse(text);
  require(MeetingFile::parse(file.text()).text() == file.text());
}

std::vector<Bytes> seeds() {
  const MeetingPoint point{{"unix:///dev/shm/ranklink-1", "tcp://[fd00::3]:29400"},
                           Secret::from_text("a secret of this test")};
  const MeetingFile file{"6ba30842", "node-7", 1234, 99, point};
  return {chosen(0, point.encode(256)), chosen(1, view_of(file.text()))};
}

}  // namespace ranklink
