#include "rendezvous/meeting_point.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "../base/expect_error.h"
#include "base/socket.h"
#include "inspect/facts.h"
#include "rendezvous/server.h"

namespace ranklink {
namespace {

using testing::HasSubstr;

Deadline safety_net() { return Deadline::after(std::chrono::seconds(20)); }

MeetingPoint sample_point() {
  return {{"unix:///dev/shm/ranklink-1", "tcp://10.0.0.1:29400", "tcp://[fd00::3]:29400"},
          Secret::from_text("a secret of this test")};
}

TEST(MeetingPoint, ComesBackFromItsBytes) {
  const MeetingPoint in = sample_point();
  Bytes bytes = in.encode(512);
  EXPECT_LE(bytes.size(), 512u);
  bytes.resize(512);  // a UniqueId is filled up with zeros
  const MeetingPoint out = MeetingPoint::decode(bytes);
  EXPECT_EQ(out.endpoints, in.endpoints);
  EXPECT_EQ(out.secret.reveal_hex(), in.secret.reveal_hex());
}

TEST(MeetingPoint, LeavesOutWhatDoesNotFit) {
  MeetingPoint in = sample_point();
  in.endpoints.insert(in.endpoints.begin() + 1, "unix:///" + std::string(200, 'x'));
  const Bytes bytes = in.encode(100);
  EXPECT_LE(bytes.size(), 100u);
  EXPECT_EQ(MeetingPoint::decode(bytes).endpoints,
            (std::vector<std::string>{in.endpoints[0], in.endpoints[2]}));
}

TEST(MeetingPoint, IsRefusedIfItIsNone) {
  const auto refused = [](const Bytes& bytes) {
    expect_error(ErrorCode::protocol_violation, [&] { MeetingPoint::decode(bytes); });
  };
  const Bytes whole = sample_point().encode(512);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    refused(Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)));
  }
  refused(Bytes(512));
  Bytes foreign = whole;
  foreign[0] ^= std::byte{1};
  refused(foreign);
  refused(MeetingPoint{{}, Secret::random()}.encode(512));
}

MeetingFile sample_file() {
  return {"6ba30842-1111", "node-7", 1234, 0x1234567890abcdef, sample_point()};
}

TEST(MeetingFile, ComesBackFromItsText) {
  const MeetingFile in = sample_file();
  const MeetingFile out = MeetingFile::parse(in.text());
  EXPECT_EQ(out.boot_id, in.boot_id);
  EXPECT_EQ(out.host, in.host);
  EXPECT_EQ(out.pid, in.pid);
  EXPECT_EQ(out.start_time, in.start_time);
  EXPECT_EQ(out.point.endpoints, in.point.endpoints);
  EXPECT_EQ(out.point.secret.reveal_hex(), in.point.secret.reveal_hex());
}

TEST(MeetingFile, KeepsASecretToItselfThatAllKnow) {
  MeetingFile file = sample_file();
  const std::string hex = file.point.secret.reveal_hex();
  EXPECT_THAT(file.text(), HasSubstr(hex));
  file.point.secret = Secret();
  EXPECT_EQ(file.text().find("secret"), std::string::npos);
  EXPECT_TRUE(MeetingFile::parse(file.text()).point.secret.empty());
}

TEST(MeetingFile, IsNeverTakenWhenItIsHalfWritten) {
  const std::string whole = sample_file().text();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    expect_error(ErrorCode::protocol_violation,
                 [&] { MeetingFile::parse(std::string_view(whole).substr(0, size)); });
  }
}

TEST(MeetingFile, IsRefusedIfItIsForeign) {
  for (const char* text :
       {"ranklink rendezvous 2\nend\n", "{\"json\": 1}\n", "\n\n\n",
        "ranklink rendezvous 1\npid 12x\nend\n", "ranklink rendezvous 1\npid 99999999999\nend\n",
        "ranklink rendezvous 1\nstart_time -1\nend\n", "ranklink rendezvous 1\nsecret 0g\nend\n",
        "ranklink rendezvous 1\nsecret 012\nend\n", "ranklink rendezvous 1\nsecret 0123\nend\n",
        "ranklink rendezvous 1\nword\nend\n"}) {
    expect_error(ErrorCode::protocol_violation, [&] { MeetingFile::parse(text); });
  }
}

TEST(MeetingFile, TakesLinesThatItDoesNotKnow) {
  const MeetingFile file =
      MeetingFile::parse("ranklink rendezvous 1\ncolour green\nhost a b\nend\n");
  EXPECT_EQ(file.host, "a b");
}

TEST(MeetingFile, IsRefusedIfItIsTooLong) {
  std::string text = "ranklink rendezvous 1\n";
  while (text.size() <= 16'384) text += "endpoint tcp://10.0.0.1:29400\n";
  expect_error(ErrorCode::protocol_violation, [&] { MeetingFile::parse(text + "end\n"); });
}

class MeetingDirectoryTest : public testing::Test {
 protected:
  ~MeetingDirectoryTest() override { std::filesystem::remove_all(directory_); }
  static std::string fresh_directory() {
    std::string path = testing::TempDir() + "/meeting-XXXXXX";
    return ::mkdtemp(path.data()) == nullptr ? "" : path;
  }
  MeetingFile my_file() const {
    const Facts facts = inspect_process();
    return {facts.boot_id, facts.hostname, facts.pid, facts.start_time, sample_point()};
  }
  mode_t mode() const {
    struct stat status {};
    EXPECT_EQ(::stat(meeting_file_path(directory_).c_str(), &status), 0);
    return status.st_mode & 0777;
  }

  const std::string directory_ = fresh_directory();
};

TEST_F(MeetingDirectoryTest, IsReadAsItWasWritten) {
  EXPECT_FALSE(read_meeting_file(directory_));
  write_meeting_file(directory_, sample_file());
  const auto read = read_meeting_file(directory_);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->text(), sample_file().text());
  EXPECT_EQ(mode(), 0600u);
  std::size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(directory_))
    ++files;
  EXPECT_EQ(files, 1u);
}

TEST_F(MeetingDirectoryTest, MayBeReadByAllWhenItHoldsNoSecret) {
  MeetingFile file = sample_file();
  file.point.secret = Secret();
  write_meeting_file(directory_, file);
  EXPECT_EQ(mode(), 0644u);
}

TEST_F(MeetingDirectoryTest, IsKeptForAJobThatLives) {
  write_meeting_file(directory_, my_file());
  const std::string what = expect_error(ErrorCode::rendezvous_unusable,
                                        [&] { write_meeting_file(directory_, sample_file()); });
  EXPECT_THAT(what, HasSubstr("pid " + std::to_string(::getpid())));
}

TEST_F(MeetingDirectoryTest, IsReplacedWhenItsOwnerIsGoneOrUnknown) {
  MeetingFile gone = my_file();
  ++gone.start_time;  // the pid was used again
  write_meeting_file(directory_, gone);
  write_meeting_file(directory_, sample_file());  // of another host
  std::ofstream(meeting_file_path(directory_)) << "ranklink rendezvous 1\nhal";
  expect_error(ErrorCode::protocol_violation, [&] { read_meeting_file(directory_); });
  write_meeting_file(directory_, my_file());
  EXPECT_EQ(read_meeting_file(directory_)->pid, ::getpid());
}

TEST_F(MeetingDirectoryTest, IsRefusedIfItIsTooLong) {
  std::ofstream(meeting_file_path(directory_)) << std::string(100'000, 'x');
  expect_error(ErrorCode::protocol_violation, [&] { read_meeting_file(directory_); });
}

TEST_F(MeetingDirectoryTest, SaysThatItCanNotBeWritten) {
  const std::string missing = directory_ + "/missing";
  EXPECT_THAT(expect_error(ErrorCode::rendezvous_unusable,
                           [&] { write_meeting_file(missing, sample_file()); }),
              HasSubstr("ENOENT"));
}

// --- Connecting ---

class ConnectToTest : public MeetingDirectoryTest {
 protected:
  void open() {
    auto [listening, point] = open_meeting_point(directory_);
    listening_ = std::move(listening);
    point_ = std::move(point);
    Server::Options options;
    options.secret = point_.secret;
    options.size = 1;
    options.listeners = std::move(listening_.listeners);
    options.reduce = [](std::string_view, const std::vector<Bytes>&) { return Bytes{}; };
    server_ = std::make_unique<Server>(std::move(options));
  }

  Listening listening_;
  MeetingPoint point_;
  std::unique_ptr<Server> server_;
};

TEST_F(ConnectToTest, ReachesAnOpenMeetingPoint) {
  open();
  EXPECT_THAT(point_.endpoints.at(0), HasSubstr("unix://" + directory_));
  for (const std::string& endpoint : point_.endpoints) {
    const MeetingPoint one{{endpoint}, point_.secret};
    EXPECT_GE(connect_to([&] { return one; }, false, safety_net()).fd(), 0) << endpoint;
  }
}

TEST_F(ConnectToTest, TriesOneEndpointAfterTheOther) {
  open();
  MeetingPoint several = point_;
  several.endpoints.insert(several.endpoints.begin(), "unix://" + directory_ + "/nobody");
  EXPECT_GE(connect_to([&] { return several; }, false, safety_net()).fd(), 0);
}

TEST_F(ConnectToTest, WaitsForWhoComesLater) {
  int looks = 0;
  const auto connection = connect_to(
      [&]() -> std::optional<MeetingPoint> {
        if (++looks == 1) return std::nullopt;
        if (looks == 2) Reader::fail("a rendezvous file that is only half written");
        if (looks == 3) return MeetingPoint{{"unix://" + directory_ + "/nobody"}, Secret::random()};
        if (looks == 4) open();
        return point_;
      },
      false, safety_net());
  EXPECT_GE(connection.fd(), 0);
  EXPECT_EQ(looks, 4);
}

TEST_F(ConnectToTest, EndsAtARefusal) {
  open();
  const MeetingPoint wrong{point_.endpoints, Secret::random()};
  const auto start = Deadline::Clock::now();
  expect_error(ErrorCode::secret_mismatch,
               [&] { connect_to([&] { return wrong; }, false, safety_net()); });
  EXPECT_LT(Deadline::Clock::now() - start, std::chrono::seconds(10));
}

TEST_F(ConnectToTest, MayTakeARefusalForAnOldJobs) {
  open();
  int looks = 0;
  const auto connection = connect_to(
      [&] {
        return ++looks == 1 ? MeetingPoint{point_.endpoints, Secret::random()} : point_;
      },
      true, safety_net());
  EXPECT_GE(connection.fd(), 0);
}

// Waiting doesn't make an endpoint of what is none.
TEST_F(ConnectToTest, EndsAtAnEndpointThatIsNone) {
  const MeetingPoint wrong{{"tcp://host-without-port"}, Secret::random()};
  const auto start = Deadline::Clock::now();
  expect_error(ErrorCode::setting_invalid,
               [&] { connect_to([&] { return wrong; }, false, safety_net()); });
  EXPECT_LT(Deadline::Clock::now() - start, std::chrono::seconds(10));
}

TEST_F(ConnectToTest, SaysWhatEachEndpointAnswered) {
  const MeetingPoint nobody{{"unix://" + directory_ + "/one", "unix://" + directory_ + "/two"},
                            Secret::random()};
  const std::string what = expect_error(ErrorCode::rendezvous_unreachable, [&] {
    connect_to([&] { return nobody; }, false, Deadline::after(Milliseconds(10)));
  });
  EXPECT_THAT(what, HasSubstr("/one: "));
  EXPECT_THAT(what, HasSubstr("/two: "));
  EXPECT_THAT(what, HasSubstr("tried until the deadline"));
}

TEST_F(ConnectToTest, SaysThatNobodyHasOpenedThePoint) {
  EXPECT_THAT(expect_error(ErrorCode::rendezvous_unreachable,
                           [&] {
                             connect_to([] { return std::nullopt; }, false,
                                        Deadline::after(Milliseconds(10)));
                           }),
              HasSubstr("nobody has opened"));
}

}  // namespace
}  // namespace ranklink
