#include <rlalgo/tensor/streams.hpp>

#include <string>
#include <thread>
#include <vector>

#include <support/catch.hpp>
#include <support/recorded_streams.hpp>

using namespace rlalgo;

TEST_CASE("nothing is waited for on the CPU, nor on a device that nobody serves") {
  for (const auto type : {at::kCPU, at::kXPU}) {
    CHECK_NOTHROW(tensor::finish_stream(at::Device(type)));
    CHECK_NOTHROW(tensor::StreamMark{at::Device(type)}.finish());
  }
}

TEST_CASE("a mark is set where it is made, and waited for in another thread") {
  auto& streams = support::RecordedStreams::of(at::kPrivateUse1);
  const at::Device device(at::kPrivateUse1, 0);
  const tensor::StreamMark mark(device);
  std::thread other([copy = mark] { copy.finish(); });
  const auto id = other.get_id();
  other.join();
  tensor::finish_stream(device);
  const auto calls = streams.take();
  REQUIRE(calls.size() == 3);
  CHECK(calls[0].what == "mark");
  CHECK(calls[0].thread == std::this_thread::get_id());
  CHECK(calls[1].what == "wait for the mark");
  CHECK(calls[1].thread == id);
  CHECK(calls[2].what == "wait for the stream");
}

TEST_CASE("what a stream is given comes behind a mark without the host's waiting") {
  auto& streams = support::RecordedStreams::of(at::kPrivateUse1);
  const at::Device device(at::kPrivateUse1, 0);
  (void)streams.take();
  const tensor::StreamMark mark(device);
  mark.precede(device);
  CHECK_FALSE(mark.reached());
  {
    const tensor::OwnStream own(device);
    CHECK(own.handle() != nullptr);
  }
  std::vector<std::string> words;
  for (const auto& call : streams.take()) words.push_back(call.what);
  CHECK(words == std::vector<std::string>{"mark", "come behind the mark", "go to a stream of the pool", "go back"});
  const tensor::StreamMark on_cpu{at::Device(at::kCPU)};
  on_cpu.precede(at::Device(at::kCPU));
  CHECK(on_cpu.reached());
  CHECK(on_cpu.seconds_to(on_cpu) == 0.0);
}
