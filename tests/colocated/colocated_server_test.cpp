#include <rlalgo/colocated/colocated_server.hpp>

#include <chrono>
#include <memory>
#include <thread>

#include <c10/core/GradMode.h>

#include <rlalgo/model/lora.hpp>
#include <rlalgo/os/clock.hpp>

#include <support/scratch.hpp>

#include "colocated/beside.hpp"

using namespace rlalgo;
using colocated::ColocatedServer;

TEST_CASE("agents get the weights that were published last, whatever the trainer does to its own meanwhile") {
  serve::ServedModel model = served::model();
  const auto decoder = served::decoder();
  decoder->set_trained(true);
  model.decoder = decoder;
  ColocatedServer server(std::move(model), beside::config());
  const auto first = beside::ask(server.url());  // before anything was published
  CHECK(first.ids.size() == 12);
  CHECK(first.version == "0");
  const std::size_t bytes = server.publish(5);
  CHECK(bytes > 10000);
  const auto published = beside::ask(server.url());
  CHECK(published.version == "v5");
  beside::change(*decoder);
  ColocatedServer same(beside::trained(), beside::config());  // a new server with the old weights draws the same
  (void)same.publish(5);
  const auto expected = beside::ask(same.url());
  CHECK(expected.ids == published.ids);
  CHECK(expected.log_probs == published.log_probs);
  const auto second = beside::ask(server.url()), second_expected = beside::ask(same.url());
  CHECK(second.ids == second_expected.ids);  // the trainer's own have changed, the server's have not
  CHECK(second.ids != published.ids);        // and equal requests differ
  (void)server.publish(6);
  const auto changed = beside::ask(server.url());
  CHECK(changed.version == "v6");
  ColocatedServer trained(
      [&] {
        serve::ServedModel other = served::model();
        other.decoder = decoder;
        return other;
      }(),
      beside::config());
  (void)trained.publish(6);
  CHECK(beside::ask(trained.url()).log_probs == changed.log_probs);
}

TEST_CASE("an adapter is copied, the frozen weights under it are not") {
  const auto decoder = served::decoder();
  model::LoraConfig lora;
  lora.r = 2;
  lora.alpha = 64;
  lora.target_modules = {"q_proj", "down_proj"};
  lora.init = model::LoraInit::random;
  model::attach_lora(*decoder, lora, 3);
  serve::ServedModel model = served::model();
  model.decoder = decoder;
  ColocatedServer server(std::move(model), beside::config());
  const std::size_t bytes = server.publish(1);
  std::size_t trained = 0;
  for (const model::Parameter& p : decoder->parameters()) trained += p.value.nbytes();
  CHECK(bytes == trained);
  const auto with = beside::ask(server.url());
  ColocatedServer plain(served::model(), beside::config());
  (void)plain.publish(1);
  CHECK(beside::ask(plain.url()).log_probs != with.log_probs);
  beside::change(*decoder);
  (void)server.publish(1);  // the same name, other values: nothing of the old ones is taken from the prefix cache
  CHECK(beside::ask(server.url()).log_probs != with.log_probs);
}

TEST_CASE("a port that is taken is told, and the server ends in time with an agent at it") {
  ColocatedServer server(served::model(), beside::config());
  CHECK(support::number_raised_by([&] { ColocatedServer(served::model(), beside::config(server.port())); }) ==
        "http.8");
  (void)beside::ask(server.url());
  const auto ended = [&] { return server.counts().stopped + server.counts().cut; };
  const os::Stopwatch waiting;  // an answer is sent within a step of the engine, and counted at its end
  while (ended() == 0 && waiting.seconds() < 5.0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(ended() == 1);
  const os::Stopwatch watch;
  server.stop(0.0);
  CHECK(watch.seconds() < 5.0);
}
