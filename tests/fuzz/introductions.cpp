// Facts and settings of peers, and what is concluded from them.

#include "driver/driver.h"
#include "exchange/introduction.h"
#include "exchange/mechanism.h"

namespace ranklink {

void fuzz(ByteView input) {
  static const Introduction mine = introduce(inspect_process(), Settings(), {});
  const Introduction theirs = Introduction::decode(input);
  const Bytes once = theirs.encode();
  require(Introduction::decode(once).encode() == once);
  shared_namespaces(mine.facts, theirs.facts);
  const Member local{.local = true, .address = ""};
  const Member remote{.local = false, .address = "10.0.0.2"};
  for (const Mechanism& mechanism : mechanism_table()) {
    for (const Member& member : {local, remote}) {
      const Party a{0, mine.facts, member};
      const Party b{1, theirs.facts, member};
      mechanism.propose(a, b);
      mechanism.propose(b, a);
    }
  }
  check_agreement({mine, theirs});
}

std::vector<Bytes> seeds() {
  Settings settings;
  settings.set("RANKLINK_MECHANISM", "none", Origin::environment);
  Facts facts = inspect_process();
  facts.interfaces = {{"lo", true, {"127.0.0.1", "::1"}}};
  return {introduce(facts, Settings(), {"unix:///dev/shm/x", "tcp://a:1"}).encode(),
          introduce(Facts{}, settings, {}).encode()};
}

}  // namespace ranklink
