#include <rlalgo/http/served_routes.hpp>

#include <support/catch.hpp>
#include <support/http_server.hpp>
#include <support/raw_server.hpp>

using namespace rlalgo;

namespace {

constexpr std::string_view asked[] = {"/generate/", "/v1/completions", "/http_update_weights/"};

http::ServedRoutes routes_of(support::HttpServer& server) {
  http::JsonClient client(
      {.base_url = server.url(), .connect_seconds = 2, .call_seconds = 5, .retries = {.retries = 0}});
  return {client, asked};
}

}  // namespace

TEST_CASE("the list of a server is believed, with and without slashes") {
  support::HttpServer server([](const std::string& path, const std::string&) -> std::pair<int, std::string> {
    if (path == "/openapi.json") return {200, R"({"paths": {"/v1/completions": {}, "/http_update_weights/": {}}})"};
    if (path == "/version") return {200, R"({"version": "0.32.0"})"};
    return {500, ""};
  });
  const http::ServedRoutes routes = routes_of(server);
  CHECK(routes.has("/v1/completions"));
  CHECK(routes.has("/v1/completions/"));
  CHECK(routes.has("/http_update_weights"));
  CHECK_FALSE(routes.has("/generate/"));
  CHECK_FALSE(routes.may_have("/generate/"));
  CHECK(routes.may_have("/v1/completions/"));
  CHECK_FALSE(routes.is_rlalgo());
  CHECK(routes.described() == "vLLM 0.32.0");
  CHECK(server.seen().size() == 2);
}

TEST_CASE("a server without a list is asked for each path; only 405 says that there is a route for POST") {
  for (const char* list : {"", "[", "{\"paths\": 5}"})
    for (const int elsewhere : {404, 200, 401, 500}) {
      support::HttpServer server([&](const std::string& path, const std::string&) -> std::pair<int, std::string> {
        if (path == "/openapi.json") return {*list == '\0' ? 404 : 200, list};
        return {path == "/generate/" ? 405 : elsewhere, "{}"};
      });
      const http::ServedRoutes routes = routes_of(server);
      CHECK(routes.has("/generate"));
      CHECK_FALSE(routes.has("/v1/completions"));
      CHECK(routes.may_have("/v1/completions"));
      CHECK(routes.described() == "a server");
    }
}

TEST_CASE("a server that hangs up on a GET may have the route for POST") {
  support::RawServer server([](support::RawPeer& peer, int) {
    const std::string header = peer.receive_header();
    if (header.find("/generate/") != std::string::npos) return;
    peer.send("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
  });
  http::JsonClient client({.base_url = server.url(), .connect_seconds = 2, .call_seconds = 5});
  const http::ServedRoutes routes(client, asked);
  CHECK_FALSE(routes.has("/generate/"));
  CHECK(routes.may_have("/generate/"));
}

TEST_CASE("a server says what it is") {
  support::HttpServer server([](const std::string&, const std::string&) {
    return std::pair{200, std::string(R"({"version": "1.2", "server": "rlalgo", "paths": {}})")};
  });
  CHECK(routes_of(server).is_rlalgo());
  CHECK(routes_of(server).described() == "rlalgo 1.2");
}
