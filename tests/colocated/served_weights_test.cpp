#include <rlalgo/colocated/served_weights.hpp>

#include <memory>

#include <rlalgo/sync/any_sync.hpp>

#include "colocated/beside.hpp"

using namespace rlalgo;
using colocated::ServedWeights;

TEST_CASE("a publish hands a version over once") {
  const auto server = std::make_shared<colocated::ColocatedServer>(beside::trained(), beside::config());
  ServedWeights policy(server);
  const auto version = policy.version_source();
  CHECK(version() == -1);
  const sync::Published first = policy.publish(0);
  CHECK(first.version == 0);
  CHECK(first.status == sync::Published::Status::copied);
  CHECK(first.bytes > 10000);
  CHECK(version() == 0);
  CHECK(beside::ask(server->url()).version == "v0");
  CHECK(policy.publish(0).status == sync::Published::Status::unchanged);
  CHECK(policy.publish(3).version == 3);
  CHECK(beside::ask(server->url()).version == "v3");
}

TEST_CASE("it serves those who ask the server, and no other") {
  CHECK(ServedWeights::reaches(inference::WeightSource::remote));
  CHECK_FALSE(ServedWeights::reaches(inference::WeightSource::shared));
  CHECK_FALSE(ServedWeights::reaches(inference::WeightSource::snapshot));
}
