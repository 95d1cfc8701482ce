#include <support/catch.hpp>

#include <rlalgo/text/special_tokens.hpp>

using rlalgo::text::Json;
using rlalgo::text::SpecialTokens;

TEST_CASE("roles come from tokenizer_config.json, strings or objects") {
  const Json config =
      Json::parse(R"({"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false}, "unk_token": null,
      "add_bos_token": true, "image_token": "<img>", "additional_special_tokens": ["<x>", {"content": "<y>"}]})");
  const SpecialTokens tokens = SpecialTokens::from_config(config, Json());
  CHECK(tokens.get("bos_token") == "<s>");
  CHECK(tokens.get("eos_token") == "</s>");
  CHECK(tokens.get("image_token") == "<img>");
  CHECK(tokens.get("unk_token").empty());
  CHECK(tokens.named.count("unk_token") == 0);
  CHECK(tokens.extra == std::vector<std::string>{"<x>", "<y>"});
  CHECK(tokens.get("pad_token") == "</s>");  // the end token pads where nothing else does
  CHECK(tokens.pad_is_eos);
  CHECK(tokens.to_json()["bos_token"] == "<s>");
}

TEST_CASE("special_tokens_map.json overrides, unless added_tokens_decoder makes it obsolete") {
  const Json map = {{"eos_token", "<new>"}, {"pad_token", "<pad>"}};
  const Json config = {{"eos_token", "<old>"}};
  CHECK(SpecialTokens::from_config(config, map).get("eos_token") == "<new>");
  CHECK(SpecialTokens::from_config(config, map).get("pad_token") == "<pad>");
  CHECK_FALSE(SpecialTokens::from_config(config, map).pad_is_eos);
  Json newer = config;
  newer["added_tokens_decoder"] = Json::object();
  CHECK(SpecialTokens::from_config(newer, map).get("eos_token") == "<old>");
  CHECK(SpecialTokens::from_config(Json(), Json()).named.empty());
}

TEST_CASE("null takes a role away; the class of a tokenizer gives some") {
  const Json defaults = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  const SpecialTokens tokens =
      SpecialTokens::from_config(Json::parse(R"({"bos_token": null, "pad_token": "<p>"})"),
                                 Json::parse(R"({"pad_token": null, "unk_token": "<u>"})"), defaults);
  CHECK(tokens.get("bos_token").empty());
  CHECK(tokens.get("eos_token") == "</s>");
  CHECK(tokens.get("unk_token") == "<u>");
  CHECK(tokens.pad_is_eos);  // the older file takes pad_token away
}

TEST_CASE("extra tokens are those of the newer key, or of the older one where that is absent or empty") {
  const auto extra = [](const char* config, const char* map) {
    return SpecialTokens::from_config(Json::parse(config), Json::parse(map)).extra;
  };
  using Tokens = std::vector<std::string>;
  CHECK(extra(R"({"extra_special_tokens": ["a"], "additional_special_tokens": ["b"]})", "{}") == Tokens{"a"});
  CHECK(extra(R"({"extra_special_tokens": [], "additional_special_tokens": ["b"]})", "{}") == Tokens{"b"});
  CHECK(extra(R"({"additional_special_tokens": ["b"]})", R"({"additional_special_tokens": ["c"]})") == Tokens{"b"});
  CHECK(extra("{}", R"({"additional_special_tokens": ["c"]})") == Tokens{"c"});
  CHECK(extra(R"({"extra_special_tokens": ["a"]})", R"({"extra_special_tokens": ["a", "d"]})") == Tokens{"a", "d"});
}

TEST_CASE("extra tokens may have names") {
  const Json config = Json::parse(R"({"extra_special_tokens": {"audio_token": "<audio>"}})");
  CHECK(SpecialTokens::from_config(config, Json()).get("audio_token") == "<audio>");
}
