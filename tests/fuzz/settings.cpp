// The environment, and the texts that users write into settings.

#include "base/settings.h"

#include "base/socket.h"
#include "driver/driver.h"

namespace ranklink {

// Lines are variables.
void fuzz(ByteView input) {
  std::string text(reinterpret_cast<const char*>(input.data()), input.size());
  std::vector<char*> environment;
  char* line = text.data();
  for (char& c : text) {
    if (c != '\n' && c != '\0') continue;
    c = '\0';
    environment.push_back(line);
    line = &c + 1;
  }
  environment.push_back(line);  // a string ends in a zero
  const std::string last = line;
  environment.push_back(nullptr);
  if (const auto wait = parse_duration(last)) require(wait->count() >= 0);
  Settings settings;
  settings.read_environment(environment.data());
  for (const SettingRow& row : setting_table()) {
    if (settings.is_set(row.name) && row.type == "duration") settings.deadline(row.name);
  }
  split_host_port(last);
}

std::vector<Bytes> seeds() {
  std::vector<Bytes> seeds;
  for (const char* text :
       {"RANKLINK_MECHANISM=fd+socket\nRANKLINK_JOIN_TIMEOUT=5m\nRANKLINK_LOG=debug\n10.0.0.3:80",
        "RANKLINK_PORT=tcp://10.0.0.1:80\nRANKLINK_SERVICE_HOST=10.0.0.1\n[fd00::3]:29400",
        "PATH=/bin\nRANKLINK_SECRET=0123456789abcdef\nRANKLINK_OP_TIMEOUT=250ms\n2h",
        "RANKLINK_RENDEZVOUS=tcp://a:1\nRANKLINK_SOCKET_DIR=/tmp\nRANKLINK_MECANISM=auto\n",
        "RANKLINK_LAUNCHER_FD=7\nRANKLINK_RUN_TIMEOUT=99999999999h\nRANKLINK_TRIALS=all"}) {
    const ByteView view = view_of(text);
    seeds.emplace_back(view.begin(), view.end());
  }
  return seeds;
}

}  // namespace ranklink
