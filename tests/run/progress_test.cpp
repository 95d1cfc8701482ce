#include <rlalgo/run/progress.hpp>

#include <fcntl.h>

#include <support/catch.hpp>

#include "run/files.hpp"

using namespace rlalgo::run;

namespace {

// What `draw` prints to the descriptor it is given.
std::string printed(const std::function<void(int)>& draw) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  draw(ends[1]);
  ::close(ends[1]);
  std::string out;
  char buffer[4096];
  for (ssize_t n; (n = ::read(ends[0], buffer, sizeof buffer)) > 0;) out.append(buffer, static_cast<std::size_t>(n));
  ::close(ends[0]);
  return out;
}

StepResult result(double loss) {
  StepResult r;
  r.loss = loss;
  r.epoch = 0.25;
  r.tokens = 1000;
  r.metrics.mean("reward", 0.5, 1);
  return r;
}

}  // namespace

TEST_CASE("durations and counts as people write them") {
  CHECK(format_duration(7.4) == "7 s");
  CHECK(format_duration(201) == "3:21");
  CHECK(format_duration(7384) == "2:03:04");
  CHECK(format_duration(-1) == "?");
  CHECK(format_duration(HUGE_VAL) == "?");
  CHECK(format_count(7) == "7");
  CHECK(format_count(1234) == "1,234");
  CHECK(format_count(1234567.4) == "1,234,567");
  CHECK(format_count(-123) == "-123");
  CHECK(format_count(-1234) == "-1,234");
}

TEST_CASE("in a pipe: one plain line per record") {
  const std::string out = printed([](int fd) {
    Progress progress(fd);
    progress.on_start({"out", "title", 0, 10, {}});
    progress.on_step({1, 10, 0.5, result(0.125)});
    progress.on_step({2, 10, 0.5, result(0.125)});
    progress.on_record(
        {2,
         0.25,
         {{"loss", 0.125}, {"grad_norm", 2}, {"learning_rate", 1e-5}, {"reward", 0.5}, {"kl", 3}, {"train/mfu", 0.4}}});
    progress.on_record({2, 0.25, {{"eval_kl", 2}, {"eval_loss", 0.5}, {"eval_reward", 0.75}, {"time/eval", 1}}});
    progress.on_message("saved out/checkpoint-2");
    progress.on_finish();
  });
  const std::string expected =
      "step 2/10  epoch 0.25  reward 0.5  loss 0.125  grad_norm 2  lr 1e-05  2,000 tok/s  mfu 0.4  ETA 0 s\n"
      "eval 2/10  eval_loss 0.5  eval_reward 0.75\n"
      "saved out/checkpoint-2\n";
  CHECK(out == expected);
}

TEST_CASE("on a terminal: one line that is rewritten, notices above it") {
  const std::string out = printed([](int fd) {
    Progress progress(fd, true);
    progress.on_start({"out", "title", 0, 3, {}});
    progress.on_step({1, 3, 0.5, result(0.125)});
    progress.on_record({1, 0.25, {{"loss", 0.125}}});
    progress.on_record({1, 0.25, {{"eval_loss", 0.5}}});
    progress.on_message("saved");
    progress.on_step({3, 3, 0.5, result(0.25)});
    progress.on_finish();
  });
  const std::string first = "\r\x1b[Kstep 1/3  epoch 0.25  reward 0.5  loss 0.125  2,000 tok/s  ETA 0 s";
  CHECK(out == first + "\r\x1b[Keval 1/3  eval_loss 0.5\n" + first + "\r\x1b[Ksaved\n" + first +
                   "\r\x1b[Kstep 3/3  epoch 0.25  reward 0.5  loss 0.25  2,000 tok/s\n");
}

TEST_CASE("a method without reward shows its loss; NaN is not shown") {
  const std::string out = printed([](int fd) {
    Progress progress(fd, false);
    progress.on_start({"out", "title", 0, 1, {}});
    StepResult bare;
    bare.loss = 2;
    progress.on_step({1, 1, 0.5, bare});
    progress.on_record({1, 0, {{"loss", 2}, {"grad_norm", no_value}}});
  });
  CHECK(out == "step 1/1  loss 2\n");
}

TEST_CASE("pairs show accuracy and margin, cut completions their share, and rounding noise of a loss is 0") {
  const std::string out = printed([](int fd) {
    Progress progress(fd, false);
    progress.on_start({"out", "title", 0, 3, {}});
    progress.on_record({1, 0, {{"loss", -3.26e-9}, {"reward", 0.5}, {"completions/clipped_ratio", 0.25}}});
    progress.on_record({2, 0, {{"loss", 6e-7}, {"reward", 0.5}, {"completions/clipped_ratio", 0.0}}});
    progress.on_record({3, 0, {{"loss", 0.5}, {"rewards/accuracies", 0.75}, {"rewards/margins", -0.125}}});
  });
  CHECK(out ==
        "step 0/3  reward 0.5  cut 0.25  loss 0\n"
        "step 0/3  reward 0.5  loss 6e-07\n"
        "step 0/3  accuracy 0.75  margin -0.125  loss 0.5\n");
}

TEST_CASE("on a terminal a step that takes long says what it does; what stays is the line of the last step") {
  using rlalgo::core::Activity;
  const auto busy = [] {
    const Activity evaluating("evaluating");
    Activity generating("generating", 8);
    generating.advance(3);
  };
  const std::string out = printed([&](int fd) {
    Progress progress(fd, true);
    progress.on_start({"out", "title", 0, 3, {}});
    busy();
    progress.on_step({1, 3, 0.01, result(0.125)});  // a quick step: nothing flickers in the next
    busy();
    progress.on_finish();
    busy();
  });
  const std::string step = "\r\x1b[Kstep 1/3  epoch 0.25  reward 0.5  loss 0.125  100,000 tok/s  ETA 0 s";
  CHECK(out.starts_with("\r\x1b[Kstep 1/3  evaluating\r\x1b[Kstep 1/3  evaluating: generating 0/8"));
  CHECK(out.find(step) != std::string::npos);
  CHECK(out.ends_with(step + "\n"));
  const std::string message = printed([&](int fd) {
    Progress progress(fd, true);
    progress.on_start({"out", "title", 0, 3, {}});
    const Activity training("training", 4);
    progress.on_message("saved");
    progress.on_finish();
  });
  CHECK(message == "\r\x1b[Kstep 1/3  training 0/4\r\x1b[Ksaved\n");
  CHECK(printed([&](int fd) {
          Progress progress(fd, false);
          progress.on_start({"out", "title", 0, 3, {}});
          busy();
          progress.on_finish();
        }).empty());
}

TEST_CASE("colours on a terminal: a bold step, cyan evaluations, yellow warnings") {
  const std::string out = printed([](int fd) {
    Progress progress(fd, true, true);
    progress.on_start({"out", "title", 0, 1, {}});
    progress.on_message("warning: careful");
    progress.on_message("saved");
    progress.on_step({1, 1, 0.5, result(0.125)});
    progress.on_record({1, 0.25, {{"eval_loss", 0.5}}});
    progress.on_finish();
  });
  const std::string step = "\r\x1b[K\x1b[1mstep 1/1\x1b[0m  epoch 0.25  reward 0.5  loss 0.125  2,000 tok/s";
  CHECK(out == "\x1b[33mwarning: careful\x1b[0m\nsaved\n" + step + "\r\x1b[K\x1b[36meval 1/1  eval_loss 0.5\x1b[0m\n" +
                   step + "\n");
}

TEST_CASE("a finished run that is run again shows its step") {
  const std::string out = printed([](int fd) {
    Progress progress(fd);
    progress.on_start({"out", "title", 16, 16, {}});
    progress.on_record({16, 0.5, {{"loss", 0.125}}});
    progress.on_finish();
  });
  CHECK(out == "step 16/16  epoch 0.5  loss 0.125\n");
}
