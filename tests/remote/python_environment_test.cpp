#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <cmath>
#include <limits>

#include <rlalgo/os/clock.hpp>
#include <rlalgo/remote/python_environment.hpp>

using namespace rlalgo;
using environment::Json;
using environment::Said;
using environment::Start;
using environment::Turn;
using remote::PythonEnvironment;
using support::lacks;
using support::raised_by;

namespace {

constexpr const char* games_py = R"(
import asyncio, os, random, time
from enum import Enum
from typing import Any, Literal, Optional, Union


class Countdown:
    made = 0

    def __init__(self):
        Countdown.made += 1

    def reset(self, start, seed):
        self.left, self.seed = start, seed
        return " from %d" % start if start > 2 else None

    def step(self, text):
        if text == "raise":
            raise ValueError("no such move")
        if text == "hang":
            time.sleep(60)
        if text == "die":
            os._exit(4)
        if text == "shape":
            return "just text"
        if text == "word":
            return None, "much", True
        if text in ("inf", "-inf"):
            return None, float(text), True
        if text == "five":
            return "again", 1.0, False, True, {}
        if text == "draw":
            return str(random.random()), 0.0, False
        if text == "made":
            return str(Countdown.made), 0.0, False
        if text == "seed":
            return str(self.seed), 0.0, False
        self.left -= 1
        return ("%d left" % self.left, 0.5, self.left == 0)


class Patient:
    def reset(self, **row):
        self.keys = sorted(row)

    async def step(self, text):
        await asyncio.sleep(0.3)
        return ",".join(self.keys), 0.0, False


class Shelf:
    """An environment of TRL's kind."""

    def reset(self, **row):
        self.books = list(row["books"])
        return " There are %d books." % len(self.books)

    def take(self, title: str) -> str:
        """
        Takes a book from the shelf.

        Args:
            title: The title
                of the book.
        """
        self.books.remove(title)
        return title + " taken"

    def get_reward(self):
        return None if not self.books else -len(self.books)


class Untyped(Shelf):
    def burn(self, title):
        """Burns.

        Args:
            title: The title.
        """


class NoReset:
    def step(self, text):
        return None, 0.0, True


class Color(Enum):
    RED = "red"
    BLUE = "blue"


def search(query: str, limit: int = 3, kind: Literal["web", "news"] = "web", tags: Optional[list[str]] = None,
           score: Union[int, float] = 0, more: Any = None, pair: tuple[int, str] = (1, "a"), colors: Color = Color.RED,
           extra: Optional[dict[str, float]] = None) -> list[str]:
    """
    Searches the web: all of it.

    Slowly.

    Args:
        query: What to search
        limit: How many results
        kind: Where (choices: ["web", "news"])
        tags: Some tags:
            one per line
        score: A score
        more: Anything
        pair: A pair
        colors: A color
        extra: Extra

    Returns:
        The results.
    """
    return ["%s %d" % (query, limit)]


async def wait(seconds: float):
    """Waits.

    Args:
        seconds: How long
    """
    await asyncio.sleep(seconds)
    return seconds


def undescribed(x: int):
    return x
)";

struct Workshop {
  support::ScratchDirectory folder;
  remote::PythonConfig config;
  Workshop() {
    folder.write("games.py", games_py);
    config.search_paths = {folder.path()};
  }
  [[nodiscard]] std::shared_ptr<PythonEnvironment> make(std::optional<std::string> name,
                                                        const std::vector<std::string>& tools = {}) const {
    return std::make_shared<PythonEnvironment>(name, tools, config);
  }
};

Said say(std::size_t episode, const std::string& text) { return {episode, {{"role", "assistant"}, {"content", text}}}; }

Said call(std::size_t episode, const std::string& name, const Json& arguments) {
  Said out = say(episode, "");
  out.message["tool_calls"] =
      Json::array({{{"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}}});
  return out;
}

}  // namespace

TEST_CASE("a stepped class plays its episodes side by side, and instances are used again") {
  const Workshop shop;
  const auto python = shop.make("games.Countdown");
  CHECK(python->steps());
  CHECK(python->reward_name() == "Countdown");
  remote::PythonSteps all(python);
  const auto first =
      all.begin(std::vector<Start>{{{{"start", 2}, {"other", 1}}, 7}, {{{"start", 3}}, 18446744073709551615ULL}});
  REQUIRE(first.size() == 2);
  CHECK(first[0].is_null());
  CHECK(first[1] == " from 3");
  auto turns = all.step(std::vector<Said>{say(0, "x"), say(1, "seed")});
  CHECK(turns[0].observation == "1 left");
  CHECK(turns[0].reward == 0.5);
  CHECK_FALSE(turns[0].done);
  CHECK(turns[1].observation == "18446744073709551615");
  // Where the environment says what there is to do, its seed is that of the group.
  remote::PythonSteps own(shop.make("games.Countdown"));
  own.begin(std::vector<Start>{{{{"start", 2}}, 7, 9, true}, {{{"start", 2}}, 8, 9}});
  CHECK(own.step(std::vector<Said>{say(0, "seed"), say(1, "seed")})[0].observation == "9");
  turns = all.step(std::vector<Said>{say(0, "x"), say(1, "five")});
  CHECK(turns[0].done);
  CHECK(turns[1].observation == "again");
  CHECK(turns[1].done);  // truncated, in Gymnasium's words
  CHECK(all.finish().size() == 2);
  all.begin(std::vector<Start>{{{{"start", 2}}, 1}, {{{"start", 2}}, 1}, {{{"start", 2}}, 1}});
  CHECK(all.step(std::vector<Said>{say(2, "made")})[0].observation == "3");
}

TEST_CASE("random numbers of an environment are those of the question: a resumed run plays the same") {
  const Workshop shop;
  const auto once = [&] {
    remote::PythonSteps all(shop.make("games.Countdown"));
    all.begin(std::vector<Start>{{{{"start", 2}}, 7}});
    return all.step(std::vector<Said>{say(0, "draw")})[0].observation;
  };
  CHECK(once() == once());
}

TEST_CASE("coroutines run at once, and reset gets every column it can take") {
  const Workshop shop;
  remote::PythonSteps all(shop.make("games.Patient"));
  all.begin(std::vector<Start>(8, {{{"prompt", "p"}, {"answer", 3}}, 1}));
  std::vector<Said> said;
  for (std::size_t i = 0; i < 8; ++i) said.push_back(say(i, "x"));
  const os::Stopwatch watch;
  const auto turns = all.step(said);
  CHECK(watch.seconds() < 2.0);
  CHECK(turns[3].observation == "answer,prompt,seed");
}

TEST_CASE("a class of tools: methods are offered, called by name, and get_reward is the reward") {
  const Workshop shop;
  const auto python = shop.make("games.Shelf", {"games.search"});
  CHECK_FALSE(python->steps());
  environment::ToolLoop loop({std::make_shared<remote::PythonTools>(python)});
  CHECK(loop.reward_name() == "Shelf");
  const Json books = {"a", "b"};
  const auto first = loop.begin(std::vector<Start>{{{{"books", books}}, 1}, {{{"books", {"c"}}}, 1}});
  CHECK(first[0] == " There are 2 books.");
  const auto turns =
      loop.step(std::vector<Said>{call(0, "take", {{"title", "a"}}), call(1, "take", {{"title", "c"}}),
                                  call(0, "take", {{"title", "z"}}), call(1, "search", {{"query", "q"}})});
  CHECK(turns[0].observation[0]["content"] == "a taken");
  CHECK(turns[2].observation[0]["content"].get<std::string>().find("{'error': ") == 0);
  CHECK(turns[3].observation[0]["content"] == "['q 3']");
  const auto endings = loop.finish();
  CHECK(endings[0].reward == -1.0);
  CHECK(std::isnan(endings[1].reward));
  CHECK(endings[0].tool_calls == 2);
  CHECK(endings[0].tool_failures == 1);
}

// Expected: transformers.utils.get_json_schema of these functions (5.23.0).
TEST_CASE("schemas are those of transformers") {
  const Workshop shop;
  const auto python = shop.make("games.Shelf", {"games.search", "games.wait"});
  const Json expected = Json::parse(R"json([
    {"type": "function", "function": {"name": "search", "description": "Searches the web: all of it.\n\nSlowly.",
     "parameters": {"type": "object", "properties": {
       "query": {"type": "string", "description": "What to search"},
       "limit": {"type": "integer", "description": "How many results"},
       "kind": {"type": "string", "enum": ["web", "news"], "description": "Where"},
       "tags": {"type": "array", "items": {"type": "string"}, "nullable": true, "description": "Some tags: one per line"},
       "score": {"type": ["integer", "number"], "description": "A score"},
       "more": {"description": "Anything"},
       "pair": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "description": "A pair"},
       "colors": {"type": "string", "enum": ["red", "blue"], "description": "A color"},
       "extra": {"type": "object", "additionalProperties": {"type": "number"}, "nullable": true,
                 "description": "Extra"}},
      "required": ["query"]},
     "return": {"type": "array", "items": {"type": "string"}, "description": "The results."}}},
    {"type": "function", "function": {"name": "wait", "description": "Waits.",
     "parameters": {"type": "object", "properties": {"seconds": {"type": "number", "description": "How long"}},
      "required": ["seconds"]}}},
    {"type": "function", "function": {"name": "take", "description": "Takes a book from the shelf.",
     "parameters": {"type": "object", "properties": {
       "title": {"type": "string", "description": "The title of the book."}}, "required": ["title"]},
     "return": {"type": "string"}}}])json");
  CHECK(python->schemas().dump(1) == expected.dump(1));
}

TEST_CASE("what cannot be loaded or offered is named") {
  const Workshop shop;
  const auto error = [&](const std::optional<std::string>& name, const std::vector<std::string>& tools = {}) {
    return raised_by([&] { static_cast<void>(shop.make(name, tools)); });
  };
  CHECK(lacks(error("nothere.Game"), {"remote.51", "nothere"}) == "");
  CHECK(lacks(error("games.Chess"), {"remote.51", "Chess"}) == "");
  CHECK(lacks(error("games.NoReset"), {"remote.51", "reset"}) == "");
  CHECK(lacks(error("games.Untyped"), {"remote.51", "burn", "type hint"}) == "");
  CHECK(lacks(error({}, {"games.undescribed"}), {"remote.51", "undescribed", "docstring"}) == "");
  remote::PythonConfig none;
  none.python = "/no/python";
  CHECK(lacks(raised_by([&] { PythonEnvironment("games.Countdown", {}, none); }), {"remote.5"}) == "");
}

TEST_CASE("an infinite reward comes through: what becomes of it is the failure policy's to say") {
  const Workshop shop;
  remote::PythonSteps all(shop.make("games.Countdown"));
  all.begin(std::vector<Start>(2, {{{"start", 2}}, 7}));
  const auto turns = all.step(std::vector<Said>{say(0, "inf"), say(1, "-inf")});
  CHECK(turns[0].reward == std::numeric_limits<double>::infinity());
  CHECK(turns[1].reward == -std::numeric_limits<double>::infinity());
}

TEST_CASE("an environment that raises, hangs, dies or answers something else is an error with its episode") {
  Workshop shop;
  shop.config.call_seconds = 1.0;
  const auto error = [&](const std::string& text) {
    remote::PythonSteps all(shop.make("games.Countdown"));
    all.begin(std::vector<Start>(2, {{{"start", 2}}, 7}));
    return raised_by([&] { static_cast<void>(all.step(std::vector<Said>{say(0, "x"), say(1, text)})); });
  };
  CHECK(lacks(error("raise"), {"remote.52", "games.Countdown", "no such move", "episode 1", "games.py"}) == "");
  CHECK(lacks(error("hang"), {"remote.54", "trl.environment_timeout"}) == "");
  CHECK(lacks(error("die"), {"remote.55", "games.Countdown"}) == "");
  CHECK(lacks(error("shape"), {"remote.53", "just text", "(observation, reward, done)"}) == "");
  CHECK(lacks(error("word"), {"remote.53", "much"}) == "");
  remote::PythonSteps all(shop.make("games.Countdown"));
  CHECK(lacks(raised_by([&] {
                static_cast<void>(all.begin(std::vector<Start>(1, {Json::object(), 7})));
              }),
              {"remote.52", "reset", "start"}) == "");
}
