#include <rlalgo/run/metric_window.hpp>

#include <support/catch.hpp>

using namespace rlalgo::run;

namespace {

StepResult result(double loss, double reward, double tokens) {
  StepResult r;
  r.loss = loss;
  r.grad_norm = loss * 10;
  r.learning_rate = loss / 10;
  r.metrics.mean("reward", reward, std::isnan(reward) ? 0.0 : 1.0);
  r.metrics.maximum("completions/max_length", tokens);
  r.metrics.last("num_tokens", tokens);
  r.seconds = {{"train", loss}};
  return r;
}

}  // namespace

TEST_CASE("logged values are means over the steps that have a value") {
  MetricWindow window;
  CHECK(window.empty());
  window.add(result(1, 0.5, 10), 2);
  window.add(result(2, no_value, 20), 4);
  window.add(result(6, 1.0, 60), 6);
  const Record record = window.flush(3, 0.75);
  CHECK(record.step == 3);
  CHECK(record.epoch == 0.75);
  CHECK(record.value("loss") == 3.0);                     // (1 + 2 + 6) / 3
  CHECK(record.value("reward") == 0.75);                  // (0.5 + 1) / 2
  CHECK(record.value("completions/max_length") == 30.0);  // each step counts once
  CHECK(record.value("num_tokens") == 60.0);              // overwritten
  CHECK(record.value("grad_norm") == 60.0);               // of the newest step
  CHECK(record.value("learning_rate") == 0.6);
  CHECK(record.value("time/train") == 3.0);
  CHECK(record.value("time/step") == 4.0);
  CHECK(window.empty());
}

TEST_CASE("a metric that is NaN in every step is null, one that never came is absent, and windows do not mix") {
  MetricWindow window;
  window.add(result(1, no_value, 1), 1);
  Record record = window.flush(1, 0);
  CHECK(std::isnan(record.value("reward")));
  CHECK(to_line(record).find("\"reward\": null") != std::string::npos);
  StepResult bare;
  bare.loss = 5;
  window.add(bare, 1);
  record = window.flush(2, 0);
  CHECK(record.value("loss") == 5.0);
  CHECK(to_line(record).find("reward") == std::string::npos);
}

TEST_CASE("print order: loss, grad_norm, learning_rate, metrics, times") {
  MetricWindow window;
  window.add(result(1, 1, 1), 1);
  StepResult later = result(1, 1, 1);
  later.metrics.mean("late", 1, 1);  // after the times of the first step, printed before them
  window.add(later, 1);
  std::string order;
  for (const auto& [name, value] : window.flush(2, 0).values) order += name + " ";
  CHECK(order == "loss grad_norm learning_rate reward completions/max_length num_tokens late time/train time/step ");
}

TEST_CASE("a window restored from its state logs what the original would have logged") {
  MetricWindow window;
  window.add(result(0.1, 0.3, 10), 2);
  StepResult infinite = result(0.2, no_value, 20);
  infinite.metrics.mean("ratio", HUGE_VAL, 1.0);
  window.add(infinite, 2);
  MetricWindow restored;
  restored.restore(Json::parse(window.state().dump()));
  for (MetricWindow* w : {&window, &restored}) w->add(result(0.7, 0.9, 30), 2);
  CHECK(restored.state() == window.state());
  CHECK(to_line(restored.flush(3, 1)) == to_line(window.flush(3, 1)));
}
