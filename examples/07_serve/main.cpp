// Lesson 7: a generation server in a program of one's own, and a client that asks it: a completion, a conversation as a
// stream, and what an error looks like.
//
//   example_07_serve MODEL_DIR
#include <iostream>
#include <stdexcept>
#include <string>

#include <rlalgo/http/client.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/serve/server.hpp>

using namespace rlalgo;
using data::Json;

namespace {

http::Response ask(http::Client& client, const std::string& route, const Json& body) {
  const http::Result result = client.call(
      {.method = "POST", .target = route, .headers = {{"Authorization", "Bearer secret"}}, .body = body.dump()});
  if (!result.answered()) throw std::runtime_error(result.text());
  return result.response();
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::cerr << "usage: example_07_serve MODEL_DIR\n";
    return 2;
  }
  const std::string directory = argv[1];
  serve::ServedModel model{.name = "lesson",
                           .root = directory,
                           .decoder = model::load_decoder(directory),
                           .tokenizer = text::Tokenizer::from_directory(directory),
                           .chat_template = text::ChatTemplate::from_directory(directory)};
  for (const std::int64_t id : model::eos_token_ids(directory))
    model.stop_ids.push_back(static_cast<data::TokenId>(id));

  serve::ServerConfig config;
  config.http.port = 0;  // one that is free
  config.api_key = "secret";
  config.tell = [](const std::string& line) { std::cout << "server: " << line << "\n"; };
  serve::GenerationServer server(std::move(model), std::move(config));
  http::Client client({.base_url = server.url(), .call_seconds = 60});

  const Json completion = Json::parse(
      ask(client, "/v1/completions", {{"prompt", "1 2 3 4"}, {"max_tokens", 8}, {"temperature", 0}, {"logprobs", 0}})
          .body);
  std::cout << "completion: " << completion["choices"][0]["text"]
            << "\nlog-probs: " << completion["choices"][0]["logprobs"]["token_logprobs"] << "\n";

  // What a trainer asks for: token ids, several completions, log-probs of what was drawn.
  const Json drawn = Json::parse(
      ask(client, "/generate/", {{"prompts", {"1 2 3 4"}}, {"n", 3}, {"temperature", 0.8}, {"max_tokens", 4}}).body);
  std::cout << "ids: " << drawn["completion_ids"] << "\nunder weights: " << drawn["weights_versions"] << "\n";

  const http::Response stream =
      ask(client, "/v1/completions", {{"prompt", "1 2 3 4"}, {"max_tokens", 3}, {"stream", true}});
  std::cout << "events:\n" << stream.body;

  const http::Response refused = ask(client, "/v1/completions", {{"prompt", "1 2"}, {"temperature", -1}});
  std::cout << "status " << refused.status << ": " << refused.body << "\n";

  server.stop(10.0);  // finishes what it has
  return 0;
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
