#include <string>

#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <rlalgo/remote/gym_directory.hpp>

using namespace rlalgo;
using remote::GymDirectory;
using remote::GymKind;
using support::lacks;
using support::raised_by;
using Json = GymDirectory::Json;

namespace {

Json server(const std::string& section, const std::string& inner, int port, const Json& more = Json::object()) {
  Json one = {{"entrypoint", "app.py"}, {"host", "0.0.0.0"}, {"port", port}};
  one.update(more);
  return {{section, {{inner, one}}}};
}

const Json document = {
    {"config_paths", Json::array({"a.yaml"})},
    {"head_server", {{"host", "127.0.0.1"}, {"port", 11000}}},
    {"match", server("resources_servers", "match", 10001)},
    {"state_resources_server", server("resources_servers", "state", 10002)},
    {"game_one", server("resources_servers", "openenv", 10003)},
    {"game_two", server("resources_servers", "openenv", 10004)},
    {"late", {{"resources_servers", {{"late", {{"entrypoint", "app.py"}}}}}}},
    {"match_agent", server("responses_api_agents", "simple_agent", 10005,
                           {{"resources_server", {{"type", "resources_servers"}, {"name", "match"}}}})},
};
const GymDirectory directory(document, "http://head");

std::string error(GymKind kind, const std::string& name) {
  return raised_by([&] { (void)directory.find(kind, name, "row 3"); });
}

}  // namespace

TEST_CASE("servers go by the name at the top, and by the inner one where it is unique") {
  CHECK(directory.servers().size() == 5);
  CHECK(directory.find(GymKind::resources, "match", "").url == "http://127.0.0.1:10001");
  CHECK(directory.find(GymKind::resources, "state", "").name == "state_resources_server");
  CHECK(directory.find(GymKind::resources, "game_two", "").url == "http://127.0.0.1:10004");
  CHECK(directory.find(GymKind::agent, "match_agent", "").resources == "match");
  CHECK(directory.find(GymKind::agent, "simple_agent", "").name == "match_agent");
}

TEST_CASE("an unknown or ambiguous name is refused with those that exist") {
  CHECK(lacks(error(GymKind::resources, "matc"),
              {"remote.71", "matc", "state_resources_server", "game_one", "did you mean match?", "row 3"}) == "");
  CHECK(lacks(error(GymKind::agent, "chess"), {"remote.71", "agent", "match_agent"}) == "");
  CHECK(lacks(error(GymKind::model, "policy"), {"remote.71", "it has none"}) == "");
  CHECK(lacks(error(GymKind::resources, "openenv"), {"remote.72", "game_one", "game_two"}) == "");
}

TEST_CASE("a document that is none is refused") {
  CHECK(lacks(raised_by([] { GymDirectory(Json::array(), "http://head"); }), {"remote.70", "http://head"}) == "");
  CHECK(lacks(raised_by([] {
                GymDirectory({{"a", {{"resources_servers", 3}}}}, "h");
              }),
              {"remote.70", "a.resources_servers"}) == "");
}
