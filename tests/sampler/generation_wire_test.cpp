#include <rlalgo/sampler/detail/generation_wire.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <support/catch.hpp>
#include <support/damage.hpp>
#include <support/table_generator.hpp>

#include <rlalgo/core/digest.hpp>
#include <rlalgo/core/error.hpp>

using namespace rlalgo;
using sampler::detail::ExpectedPart;
using sampler::detail::GenerationPart;
using sampler::detail::pack_part;
using sampler::detail::unpack_part;

namespace {

const std::vector<data::TokenizedPrompt>& prompts() {
  static const std::vector<data::TokenizedPrompt> all = [] {
    auto out = support::numbered_prompts(6);
    out[4].answer_ids = {3, 1};
    out[4].answer_mask = {1, 0};
    return out;
  }();
  return all;
}
const std::vector<std::size_t> chosen = {4, 1};

std::vector<sampler::WeightedReward> rewards() {
  return {{"right", [](const std::string&) { return 1.0; }, 0.5}, {"short", [](const std::string&) { return 1.0; }}};
}

ExpectedPart expected(const std::vector<sampler::WeightedReward>& of) {
  return {.prompts = prompts(), .chosen = chosen, .copies = 2, .rewards = of, .rank = 3};
}

// Everything that an episode can have.
GenerationPart part_of(bool scored) {
  GenerationPart part;
  part.tokens = 1234567890123;
  part.generation = std::make_shared<sampler::Generation>();
  part.generation->rewards = sampler::detail::table_of(rewards(), scored ? 4 : 0);
  for (std::size_t i = 0; i < 4; ++i) {
    const data::TokenizedPrompt& prompt = prompts()[chosen[i / 2]];
    data::Episode r;
    r.dataset_row = prompt.row;
    r.prompt = prompt.prompt;
    r.first().prompt_ids = prompt.ids;
    r.first().completion_ids = {1, -2, static_cast<data::TokenId>(i)};
    r.first().sampling_log_probs = {-0.1F, std::numeric_limits<float>::quiet_NaN(),
                                    -std::numeric_limits<float>::infinity()};
    r.first().finish = i == 0 ? data::Finish::stop : i == 1 ? data::Finish::length : data::Finish::aborted;
    r.first().weights_version = 40 + static_cast<std::int64_t>(i);
    if (scored) {
      r.rewards = {0.1 * static_cast<double>(i), std::nan("")};
      r.logged = {{"note", std::string("no UTF-8 \xff\xfe", 11)},
                  {"number", std::nan("")},
                  {"large", std::uint64_t{1} << 63U},
                  {"list", {1, -2, 0.1, nullptr, true, data::Json::object()}}};
    }
    if (i == 2) {
      r.first().own_prompt = true;
      r.first().prompt_ids = {9, 9};
      r.first().loss_mask = {1, 0, 1};
      r.first().old_log_probs = {-1, -2, -3};
      r.first().reference_log_probs = {-4, -5, -6};
      r.first().routed_experts = {7, 8, 65535};
      r.interaction = std::make_shared<const data::Interaction>(data::Interaction{.messages = {{{"role", "assistant"}}},
                                                                                  .last_text = "last",
                                                                                  .reward = std::nan(""),
                                                                                  .turns = 2,
                                                                                  .has_tools = true,
                                                                                  .tool_calls = 3,
                                                                                  .tool_failures = 1,
                                                                                  .columns = {{"level", 4}},
                                                                                  .prompt = "it began so",
                                                                                  .failure = "timeout"});
      r.rows.resize(3);
      r.rows[1].completion_ids = {5};
      r.rows[2].own_prompt = true;
      r.rows[2].prompt_ids = {6, 6, 6};
      r.rows[2].completion_ids = {};
    }
    part.lengths.add(r, std::vector<data::TokenId>{0});
    part.generation->episodes.push_back(std::move(r));
  }
  part.about.metrics.mean("a", 0.1, 3);
  part.about.metrics.minimum("b", -1);
  part.about.metrics.maximum("c", 7);
  part.about.metrics.last("d", 1e300);
  part.about.warnings = {"one", "two"};
  return part;
}

// With the digest of what the message holds now.
std::string sealed(std::string message) {
  const std::uint64_t size = message.size() - 24;
  const std::uint64_t digest = core::Digest().update(std::string_view(message).substr(24)).value();
  std::memcpy(message.data() + 8, &size, sizeof size);
  std::memcpy(message.data() + 16, &digest, sizeof digest);
  return message;
}

}  // namespace

TEST_CASE("what a rank sends of a generation is read to the bit") {
  const auto of = rewards();
  for (const bool scored : {true, false}) {
    const GenerationPart sent = part_of(scored);
    const std::string message = pack_part(sent);
    ExpectedPart known = expected(of);
    if (!scored) known.rewards = {};
    const GenerationPart read = unpack_part(message, known);
    CHECK(pack_part(read) == message);
    CHECK(read.tokens == sent.tokens);
    CHECK(read.about.warnings == sent.about.warnings);
    CHECK(read.lengths.numbers() == sent.lengths.numbers());
    CHECK(read.about.metrics.values() == sent.about.metrics.values());
    REQUIRE(read.generation->episodes.size() == 4);
    CHECK(read.generation->groups.count() == 2);
    const data::Episode& r = read.generation->episodes[2];
    CHECK(r.columns == prompts()[1].columns);
    CHECK(r.prompt == prompts()[1].prompt);
    CHECK(r.interaction->failure == "timeout");
    CHECK(r.interaction->prompt == "it began so");
    CHECK(r.rows[1].prompt_ids == prompts()[1].ids);
    CHECK(r.dataset_row == prompts()[1].row);
    CHECK(read.generation->episodes[0].answer_ids == std::vector<data::TokenId>{3, 1});
    CHECK(read.generation->episodes[1].answer_ids.empty());
    CHECK(read.generation->episodes[0].first().prompt_ids == prompts()[4].ids);
    CHECK_FALSE(read.generation->episodes[0].first().own_prompt);
    if (scored) {
      CHECK(read.generation->rewards(3, 0) == 0.1 * 3);
      CHECK(read.generation->rewards.names() == std::vector<std::string>{"right", "short"});
      CHECK(read.generation->rewards.weights() == std::vector<double>{0.5, 1.0});
      CHECK(r.logged["note"].get_ref<const std::string&>() == std::string("no UTF-8 \xff\xfe", 11));
    }
  }
}

TEST_CASE("a rank without a share sends no episode") {
  GenerationPart none;
  none.generation = std::make_shared<sampler::Generation>();
  const auto of = rewards();
  ExpectedPart known = expected(of);
  known.chosen = {};
  CHECK(unpack_part(pack_part(none), known).generation->episodes.empty());
}

TEST_CASE("what is cut short, has a bit changed or something behind it is refused by name, with place and rank") {
  const auto of = rewards();
  const std::string message = pack_part(part_of(true));
  for (std::size_t size = 0; size < message.size(); ++size)
    REQUIRE_THROWS_WITH(unpack_part(message.substr(0, size), expected(of)), Catch::Contains("[rlalgo.sampler.10]"));
  for (std::size_t at = 0; at < message.size(); ++at) {
    std::string changed = message;
    changed[at] = static_cast<char>(changed[at] ^ (1 << (at % 8)));
    REQUIRE_THROWS_WITH(unpack_part(changed, expected(of)), Catch::Contains("[rlalgo.sampler.10]"));
  }
  CHECK_THROWS_WITH(unpack_part(message + "x", expected(of)), Catch::Contains("from rank 3"));
  CHECK_THROWS_WITH(unpack_part(sealed(message + "x"), expected(of)),
                    Catch::Contains("1 bytes behind the part") && Catch::Contains("same build"));
  std::string later = message;
  later[4] = 2;
  CHECK_THROWS_WITH(unpack_part(later, expected(of)), Catch::Contains("format 2") && Catch::Contains("byte 8 of"));
}

TEST_CASE("numbers of things that are not there are refused before anything is made of them") {
  const auto of = rewards();
  const std::string message = pack_part(part_of(true));
  // After the head: tokens, and the number of lengths, of 8 each.
  std::string many = message;
  const std::uint64_t count = std::uint64_t{1} << 61U;
  std::memcpy(many.data() + 24 + 8, &count, sizeof count);
  CHECK_THROWS_WITH(unpack_part(sealed(many), expected(of)), Catch::Contains("2305843009213693952 times 8"));
  ExpectedPart other = expected(of);
  other.copies = 3;
  CHECK_THROWS_WITH(unpack_part(message, other), Catch::Contains("4 completions"));
  other = expected(of);
  other.rewards = std::span(of).first(1);
  CHECK_THROWS_WITH(unpack_part(message, other), Catch::Contains("2 rewards"));
  const std::vector<std::size_t> wrong = {2, 1};
  other = expected(of);
  other.chosen = wrong;
  CHECK_THROWS_WITH(unpack_part(message, other), Catch::Contains("dataset row"));
  data::Json deep = 1;
  for (int i = 0; i < 300; ++i) deep = data::Json::array({std::move(deep)});
  GenerationPart nested = part_of(true);
  nested.generation->episodes[0].logged = std::move(deep);
  CHECK_THROWS_WITH(unpack_part(pack_part(nested), expected(of)), Catch::Contains("more levels"));
}

TEST_CASE("damaged messages whose digest is right are read or refused, quickly") {
  const auto of = rewards();
  const std::string message = pack_part(part_of(true));
  const support::FuzzInputs inputs = support::fuzz_inputs(20'000);
  std::size_t read = 0;
  for (std::uint64_t i = inputs.first; i < inputs.first + inputs.count; ++i) {
    support::Draw draw(11, i);
    std::string damaged = message;
    for (std::uint64_t change = 0; change <= draw.below(3); ++change) {
      const std::size_t at = 24 + draw.below(damaged.size() - 24);
      switch (draw.below(4)) {
        case 0:
          damaged[at] = static_cast<char>(draw.below(256));
          break;
        case 1:
          damaged.erase(at, 1 + draw.below(12));
          break;
        case 2:
          damaged.insert(at, 1 + draw.below(9), static_cast<char>(draw.below(256)));
          break;
        default:
          for (std::size_t k = at; k < std::min(damaged.size(), at + 8); ++k) damaged[k] = static_cast<char>(0xFF);
      }
      if (damaged.size() <= 32) break;
    }
    try {
      (void)unpack_part(sealed(damaged), expected(of));
      ++read;
    } catch (const core::Error& e) {
      INFO("input " << i);
      REQUIRE(e.room() == "sampler");
      REQUIRE(e.number() == 10);
    }
  }
  CHECK(read < inputs.count);
}
