#include <rlalgo/distributed/pickle.hpp>

#include <cstdint>
#include <string>

#include <rlalgo/core/error.hpp>

#include <support/catch.hpp>

using namespace rlalgo;

namespace {

std::string id() {
  std::string out;
  for (int i = 0; i < 128; ++i) out += static_cast<char>(i * 7 + 3);
  return out;
}

std::string bytes_of(const std::string& hex) {
  std::string out;
  for (std::size_t i = 0; i < hex.size(); i += 2) out += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return out;
}

template <class F>
bool refused(const F& read) {
  try {
    (void)read();
  } catch (const core::Error& error) {
    return error.room() == "distributed" && error.number() == 19;
  }
  return false;
}

}  // namespace

// From Python 3.11: pickle.dumps(ncclUniqueId()) in a module of vLLM's name, protocols 4 and 5 differ in the second byte.
TEST_CASE("an id is pickled to the byte as Python does it, and read back") {
  const std::string pickle = distributed::pickled_nccl_id(id());
  CHECK(pickle.size() == 247);
  CHECK(pickle.substr(0, 11) == bytes_of("800495ec00000000000000"));
  CHECK(pickle.substr(11, 100) ==
        bytes_of(
            "8c075f6374797065739"
            "48c095f756e7069636b6c65949394"
            "8c34766c6c6d2e64697374726962757465642e6465766963655f636f6d6d756e696361746f72732e70796e63636c5f7772617070"
            "6572948c0c6e63636c556e69717565496494939"
            "47d944380"));
  CHECK(pickle.substr(239) == bytes_of("94869486"
                                       "9452942e"));
  CHECK(distributed::nccl_id_in(pickle) == id());
  std::string newer = pickle;
  newer[1] = 5;
  CHECK(distributed::nccl_id_in(newer) == id());
  CHECK(refused([] { return distributed::nccl_id_in(""); }));
  CHECK(refused([] { return distributed::nccl_id_in(distributed::pickled_text("barrier_1")); }));
  CHECK(refused([&] { return distributed::nccl_id_in(pickle.substr(0, 230)); }));
}

TEST_CASE("texts and None, in the protocols that Python may write") {
  CHECK(distributed::pickled_text("barrier_ab") == bytes_of("8004950e000000000000008c0a626172726965725f6162942e"));
  CHECK(distributed::text_in(distributed::pickled_text("barrier_ab")) == "barrier_ab");
  CHECK(distributed::text_in(bytes_of("8005950e000000000000008c0a626172726965725f6162942e")) == "barrier_ab");
  CHECK(distributed::text_in(bytes_of("80025803000000616263"
                                      "71002e")) == "abc");  // protocol 2
  CHECK(distributed::pickled_none() == bytes_of("80044e2e"));
  CHECK(!distributed::text_in(distributed::pickled_none()));
  CHECK(!distributed::text_in(bytes_of("80034e2e")));
  const std::string whole = distributed::pickled_text("barrier_ab");
  for (std::size_t size = 0; size < whole.size() - 2; ++size)
    CHECK(refused([&] { return distributed::text_in(whole.substr(0, size)); }));
  CHECK(refused([] { return distributed::text_in(bytes_of("80044b012e")); }));  // 1
  CHECK(refused([] {
    return distributed::text_in(
        bytes_of("800258ffffffff616263"
                 "71002e"));
  }));  // longer than it is
}
