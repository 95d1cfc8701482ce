#include <filesystem>
#include <fstream>

#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <rlalgo/data/preference_tokens.hpp>
#include <rlalgo/text/chat_template.hpp>

using namespace rlalgo::data;

namespace {

// A tokenizer of bytes with a few special tokens, longest first; adds `bos` when asked for special tokens.
struct Bytes {
  std::string eos = "<|im_end|>";
  bool adds_bos = false;
  static constexpr TokenId bos_id = 261;
  const std::vector<std::pair<std::string, TokenId>> specials = {
      {"<|endoftext|>", 256}, {"<|im_start|>", 257}, {"<|im_end|>", 258}, {"<s>", bos_id}, {"ab", 262}};

  [[nodiscard]] std::vector<TokenId> encode(const std::string& text, bool special) const {
    std::vector<TokenId> out;
    if (special && adds_bos) out.push_back(bos_id);
    for (std::size_t i = 0; i < text.size();) {
      bool found = false;
      for (const auto& [name, id] : specials)
        if (!found && text.compare(i, name.size(), name) == 0) {
          out.push_back(id);
          i += name.size();
          found = true;
        }
      if (!found) out.push_back(static_cast<unsigned char>(text[i++]));
    }
    return out;
  }
  [[nodiscard]] std::string decode(std::span<const TokenId> ids) const {
    std::string out;
    for (const TokenId id : ids) {
      std::string text(1, static_cast<char>(id));
      for (const auto& [name, special] : specials)
        if (special == id) text = name;
      out += text;
    }
    return out;
  }
  [[nodiscard]] TextTools tools() const {
    TextTools t;
    t.encode = [this](const std::string& text, bool special) { return encode(text, special); };
    t.decode = [this](std::span<const TokenId> ids) { return decode(ids); };
    t.render = [](const Json& messages, bool prompt) {
      std::string out;
      for (const Json& m : messages) out += "[" + m["content"].get<std::string>() + "]";
      return out + (prompt ? ">" : "");
    };
    if (adds_bos) t.bos = bos_id;
    t.eos = encode(eos, false)[0];
    t.eos_text = eos;
    return t;
  }
};

struct Tokenized {
  AnswerSet set;
  TokenizeCounts counts;
};

Tokenized run(const std::vector<Json>& rows, const TokenizeConfig& config, const Bytes& bytes = {}) {
  Table table;
  for (const Json& row : rows) table.append(row, {nullptr, 1, -1});
  const TextTools tools = bytes.tools();
  Tokenized out{AnswerSet(), {}};
  out.set = tokenize_preferences(table, config, tools, out.counts);
  return out;
}

Json pair(const std::string& prompt, const std::string& chosen, const std::string& rejected) {
  return {{"prompt", prompt}, {"chosen", chosen}, {"rejected", rejected}};
}

std::vector<TokenId> completion(const AnswerSet& set, std::size_t i) {
  const auto c = set.completion(i);
  return {c.begin(), c.end()};
}
std::vector<TokenId> prompt(const AnswerSet& set, std::size_t i) {
  const Answer a = set.answer(i);
  return {a.prompt().begin(), a.prompt().end()};
}

const std::string chatml = "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n";
const std::vector<TokenId> chatml_ids = {257, 117, 115, 101, 114, 10,  81, 258, 10,  257,
                                         97,  115, 115, 105, 115, 116, 97, 110, 116, 10};

}  // namespace

TEST_CASE("the end token's text is appended unless the answer ends with it (golden)") {
  const auto same = run({pair(chatml, "4<|im_end|>", "5<|im_end|>")}, {});
  CHECK(prompt(same.set, 0) == chatml_ids);
  CHECK(completion(same.set, 0) == std::vector<TokenId>{52, 258});
  CHECK(completion(same.set, 1) == std::vector<TokenId>{53, 258});
  const auto base = run({pair(chatml, "4<|im_end|>", "5<|im_end|>")}, {}, {.eos = "<|endoftext|>"});
  CHECK(completion(base.set, 0) == std::vector<TokenId>{52, 258, 256});
  CHECK(completion(base.set, 1) == std::vector<TokenId>{53, 258, 256});
}

TEST_CASE("a token across the boundary belongs to the answers, for both alike") {
  const auto t = run({pair("xa", "b", "c")}, {});  // "ab" is one token
  CHECK(prompt(t.set, 0) == std::vector<TokenId>{'x'});
  CHECK(prompt(t.set, 1) == std::vector<TokenId>{'x'});
  CHECK(completion(t.set, 0) == std::vector<TokenId>{262, 258});
  CHECK(completion(t.set, 1) == std::vector<TokenId>{'a', 'c', 258});
}

TEST_CASE("begin-of-text that the template prints too is kept once") {
  const auto t = run({pair("<s>Q", "a", "b")}, {}, {.adds_bos = true});
  CHECK(prompt(t.set, 0) == std::vector<TokenId>{Bytes::bos_id, 'Q'});
}

TEST_CASE("end_id: ids of begin and end are put where they lack") {
  const TokenizeConfig config{.family = PreferenceFamily::odds, .end = EndRule::id};
  const auto t = run({pair("Q", "4<|im_end|>\n", "5<|im_end|>")}, config, {.adds_bos = true});
  CHECK(prompt(t.set, 0) == std::vector<TokenId>{Bytes::bos_id, 'Q'});
  CHECK(completion(t.set, 0) == std::vector<TokenId>{'4', 258, '\n', 258});
  CHECK(completion(t.set, 1) == std::vector<TokenId>{'5', 258});
}

TEST_CASE("messages go through the template; no end token is appended to them") {
  const Json user = {{"role", "user"}, {"content", "Q"}};
  const auto answer = [](const char* text) { return Json::array({{{"role", "assistant"}, {"content", text}}}); };
  const auto t = run({{{"prompt", Json::array({user})}, {"chosen", answer("y")}, {"rejected", answer("z")}}}, {});
  // Prompt "[Q]>", full "[Q][y]": they part at the generation prompt.
  CHECK(prompt(t.set, 0) == std::vector<TokenId>{'[', 'Q', ']'});
  CHECK(completion(t.set, 0) == std::vector<TokenId>{'[', 'y', ']'});
}

TEST_CASE("rows longer than sequence_len: drop, truncate, raise") {
  const std::vector<Json> rows = {pair("QQ", "abcd", "a"), pair("QQ", "c", "d"), pair("QQQQQQQQ", "c", "d")};
  TokenizeConfig config{.max_length = 4};  // "abcd" is three tokens
  auto t = run(rows, config);
  CHECK(t.set.examples() == 1);
  CHECK(t.counts.too_long == 2);
  config.excess = Excess::truncate;
  t = run(rows, config);
  CHECK(t.set.examples() == 2);
  CHECK(t.counts.truncated == 1);
  CHECK(t.counts.too_long == 1);
  CHECK(completion(t.set, 0) == std::vector<TokenId>{262, 'c'});  // the end token was cut by max_length
  CHECK(t.counts.cut == 1);
  config.excess = Excess::raise;
  CHECK_THROWS_WITH(run(rows, config), Catch::StartsWith("[rlalgo.data.25]"));
  config.excess = Excess::drop;
  CHECK_THROWS_WITH(run({rows[2]}, config), Catch::StartsWith("[rlalgo.data.26]"));
}

TEST_CASE("without the filter sequences are cut to max_length; a prompt that fills it drops the row") {
  TokenizeConfig config{.max_length = 4, .filter = false};
  auto t = run({pair("QQ", "wxyz", "a"), pair("QQQQ", "a", "b")}, config);
  CHECK(t.counts.prompt_fills == 1);
  CHECK(t.counts.cut == 1);
  CHECK(completion(t.set, 0) == std::vector<TokenId>{'w', 'x'});
  CHECK(completion(t.set, 1) == std::vector<TokenId>{'a', 258});
  config.keep_end = true;
  t = run({pair("QR", "wxyz", "a")}, config);
  CHECK(prompt(t.set, 0) == std::vector<TokenId>{'x'});
  CHECK(completion(t.set, 0) == std::vector<TokenId>{'y', 'z', 258});
}

TEST_CASE("end_id cuts each answer to what its prompt leaves") {
  TokenizeConfig config{.family = PreferenceFamily::odds, .end = EndRule::id, .max_length = 4, .filter = false};
  const auto t = run({pair("QQ", "wxyz", "a")}, config);
  CHECK(completion(t.set, 0) == std::vector<TokenId>{'w', 'x'});
  CHECK(completion(t.set, 1) == std::vector<TokenId>{'a', 258});
}

TEST_CASE("unpaired rows and their labels") {
  const TokenizeConfig config{.family = PreferenceFamily::unpaired};
  const auto row = [](Json label) { return Json{{"prompt", "Q"}, {"completion", "a"}, {"label", std::move(label)}}; };
  const auto t = run({row(true), row(false), row(1)}, config);
  CHECK(t.set.per_example() == 1);
  CHECK(t.set.examples() == 3);
  CHECK(t.set.desirable(0));
  CHECK_FALSE(t.set.desirable(1));
  CHECK(t.counts.desirable == 2);
  for (const Json& label : {Json("yes"), Json(), Json(2)})
    CHECK_THROWS_WITH(run({row(label)}, config), Catch::StartsWith("[rlalgo.data.24]"));
}

TEST_CASE("of unpaired answers what was cut off stays known") {
  const TokenizeConfig config{.family = PreferenceFamily::unpaired, .max_length = 4, .filter = false};
  const auto t = run({Json{{"prompt", "QQ"}, {"completion", "wxyz"}, {"label", true}}}, config);
  CHECK(completion(t.set, 0) == std::vector<TokenId>{'w', 'x'});
  const auto whole = t.set.whole_completion(0);
  CHECK(std::vector<TokenId>(whole.begin(), whole.end()) == std::vector<TokenId>{'w', 'x', 'y', 'z', 258});
}

TEST_CASE("pairs become unpaired rows in turn") {
  const auto t = run({pair("Q", "a", "b"), pair("R", "c", "d")}, {.family = PreferenceFamily::unpaired});
  REQUIRE(t.set.examples() == 4);
  CHECK(t.set.desirable(0));
  CHECK_FALSE(t.set.desirable(1));
  CHECK(t.set.desirable(2));
}

TEST_CASE("identical answers are counted") {
  CHECK(run({pair("Q", "a", "a"), pair("Q", "a", "b")}, {}).counts.identical == 1);
}

TEST_CASE("a row without a prompt: the common beginning of its answers") {
  const auto t = run({{{"chosen", "Why? Because"}, {"rejected", "Why? No"}}}, {});
  const Bytes bytes;
  CHECK(bytes.decode(prompt(t.set, 0)) == "Why?");
  CHECK(bytes.decode(t.set.completion(1)) == " No<|im_end|>");
  CHECK_THROWS_WITH(run({{{"chosen", "x"}, {"rejected", "y"}}}, {}), Catch::StartsWith("[rlalgo.data.10]"));
}

TEST_CASE("missing, empty and non-string columns are told with row and field") {
  CHECK_THROWS_WITH(run({{{"prompt", "Q"}, {"chosen", "a"}}}, {}), Catch::StartsWith("[rlalgo.data.10]"));
  CHECK_THROWS_WITH(run({pair("Q", "", "b")}, {}), Catch::StartsWith("[rlalgo.data.23]") && Catch::Contains("chosen"));
  Json number = pair("Q", "a", "b");
  number["rejected"] = 4;
  CHECK_THROWS_WITH(run({number}, {}), Catch::StartsWith("[rlalgo.data.10]") && Catch::Contains("rejected"));
}

TEST_CASE("an answer that merges with the whole prompt leaves the first token as context") {
  const Bytes bytes;  // "ab" is one token
  for (const EndRule end : {EndRule::text, EndRule::id}) {
    AnswerSet set(2);
    TokenizeCounts counts;
    const TextTools tools = bytes.tools();
    Table table;
    table.append(Json{{"prompt", "a"}, {"chosen", "bc"}, {"rejected", "bd"}}, {});
    set = tokenize_preferences(table, {.end = end}, tools, counts);
    CHECK(set.answer(0).ids == std::vector<TokenId>{262, 'c', 258});
    CHECK(set.answer(1).ids == std::vector<TokenId>{262, 'd', 258});
    CHECK(set.answer(0).prompt_tokens == 1);
    CHECK(set.answer(1).prompt_tokens == 1);
  }
}

TEST_CASE("a row of exactly sequence_len tokens, counted without special tokens, is kept") {
  const Bytes bytes;
  const TextTools tools = bytes.tools();
  Table table;
  table.append(Json{{"prompt", "xy"}, {"chosen", "abc"}, {"rejected", "d"}}, {});  // 2 + 2 tokens
  TokenizeCounts counts;
  CHECK(tokenize_preferences(table, {.max_length = 4}, tools, counts).examples() == 1);
  CHECK(counts.too_long == 0);
  CHECK_THROWS_WITH(tokenize_preferences(table, {.max_length = 3}, tools, counts),
                    Catch::StartsWith("[rlalgo.data.26]"));
}

TEST_CASE("tools, variables and null fields of a row are rendered as TRL renders them") {
  std::ifstream file(std::filesystem::path(rlalgo::support::test_dir) / "golden/data/template_columns.json");
  REQUIRE(file.is_open());
  const Json fixture = Json::parse(file);
  const Bytes bytes;
  std::size_t compared = 0;
  for (const Json& one : fixture["cases"]) {
    const auto method = one[0].get<std::string>(), name = one[1].get<std::string>();
    Json row = fixture["rows"][one[2].get<std::size_t>()];
    if (method == "kto") {
      row["completion"] = row["chosen"];
      row["label"] = true;
      row.erase("chosen");
      row.erase("rejected");
    }
    rlalgo::text::SpecialTokens special;
    special.named = {{"bos_token", "<s>"}, {"eos_token", "<|im_end|>"}};
    const auto chat = rlalgo::text::ChatTemplate::from_source(fixture["templates"][name].get<std::string>(), special);
    TextTools tools = bytes.tools();
    tools.render = [&](const Json& messages, bool prompt_after, const TemplateColumns& columns) {
      return chat.render(messages,
                         {.add_generation_prompt = prompt_after, .tools = columns.tools, .kwargs = columns.kwargs});
    };
    const TokenizeConfig config{.family = method == "kto" ? PreferenceFamily::unpaired : PreferenceFamily::pairs,
                                .end = method == "orpo" ? EndRule::id : EndRule::text,
                                .max_length = 4096};
    Table table;
    table.append(row, {nullptr, 1, -1});
    TokenizeCounts counts;
    const AnswerSet set = tokenize_preferences(table, config, tools, counts);
    INFO(method << ", " << name << ", " << row.dump());
    REQUIRE(set.answers() == one[3]["answers"].size());
    for (std::size_t i = 0; i < set.answers(); ++i) {
      auto answer = one[3]["answers"][i].get<std::vector<TokenId>>();
      if (method == "orpo" && answer.back() != 258) answer.push_back(258);
      CHECK(prompt(set, i) == one[3]["prompt"].get<std::vector<TokenId>>());
      CHECK(completion(set, i) == answer);
      ++compared;
    }
  }
  CHECK(compared > 100);
}

TEST_CASE("tools and variables of a row without messages, or of another form, are errors") {
  Json row = pair("p", "c", "r");
  row["tools"] = Json::array({{{"name", "f"}}});
  CHECK_THROWS_WITH(run({row}, {}), Catch::StartsWith("[rlalgo.data.33]") && Catch::Contains("memory:1"));
  row["tools"] = Json::array();
  CHECK_NOTHROW(run({row}, {}));
  row["chat_template_kwargs"] = {{"enable_thinking", false}};
  CHECK_THROWS_WITH(run({row}, {}), Catch::StartsWith("[rlalgo.data.33]") && Catch::Contains("enable_thinking"));
  row["chat_template_kwargs"] = Json::object();
  CHECK_NOTHROW(run({row}, {}));
  row["tools"] = "no JSON";
  CHECK_THROWS_WITH(run({row}, {}), Catch::StartsWith("[rlalgo.data.32]") && Catch::Contains("memory:1"));
}

TEST_CASE("a prompt that is a text beside answers that are messages") {
  const auto turn = [](const char* role, const char* text) { return Json{{"role", role}, {"content", text}}; };
  const auto list = [](std::initializer_list<Json> turns) {
    Json out = Json::array();
    for (const Json& one : turns) out.push_back(one);
    return out;
  };
  const Json right = turn("assistant", "c"), wrong = turn("assistant", "r"), asked = turn("user", "p");
  const auto texts = [&](const Json& row, PreferenceFamily family) {
    const Tokenized t = run({row}, {.family = family});
    const Bytes bytes;
    return bytes.decode(prompt(t.set, 0)) + "|" + bytes.decode(completion(t.set, 0));
  };
  const Json whole = {{"prompt", "p"}, {"chosen", list({asked, right})}, {"rejected", list({asked, wrong})}};
  CHECK(texts(whole, PreferenceFamily::pairs) == "[p]|[c]");
  const Json alone = {{"prompt", "p"}, {"chosen", list({right})}, {"rejected", list({wrong})}};
  CHECK(texts(alone, PreferenceFamily::pairs) == "[p]|[c]");
  const Json system = {{"prompt", "p"},
                       {"chosen", list({turn("system", "s"), asked, right})},
                       {"rejected", list({turn("system", "s"), asked, wrong})}};
  CHECK(texts(system, PreferenceFamily::pairs) == "[s][p]|[c]");
  const Json one = {{"prompt", "p"}, {"completion", list({asked, right})}, {"label", true}};
  CHECK(texts(one, PreferenceFamily::unpaired) == "[p]|[c]");
  const Json other = {{"prompt", "q"}, {"chosen", list({asked, right})}, {"rejected", list({asked, wrong})}};
  CHECK_THROWS_WITH(run({other}, {}), Catch::StartsWith("[rlalgo.data.34]") && Catch::Contains("memory:1"));
}

TEST_CASE("what a chat template raises names the row") {
  const auto chat = rlalgo::text::ChatTemplate::from_source("{{ raise_exception('no') }}");
  const Bytes bytes;
  TextTools tools = bytes.tools();
  tools.render = [&](const Json& messages, bool) { return chat.render(messages); };
  Table table;
  table.append(
      Json{{"prompt", Json::array({{{"role", "user"}, {"content", "p"}}})}, {"chosen", "c"}, {"rejected", "r"}},
      {std::make_shared<const std::string>("rows.jsonl"), 7, -1});
  TokenizeCounts counts;
  CHECK_THROWS_WITH(tokenize_preferences(table, {}, tools, counts),
                    Catch::StartsWith("[rlalgo.text.8]") && Catch::Contains("(rows.jsonl:7)"));
}
