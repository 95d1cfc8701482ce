// The definitions of run/, compiled once (RlalgoCompiled.cmake).
#include <rlalgo/run/detail/checkpoint_impl.hpp>
#include <rlalgo/run/detail/health_impl.hpp>
#include <rlalgo/run/detail/loop_impl.hpp>
#include <rlalgo/run/detail/metric_window_impl.hpp>
#include <rlalgo/run/detail/model_card_impl.hpp>
#include <rlalgo/run/detail/report_impl.hpp>
#include <rlalgo/run/detail/resume_impl.hpp>
#include <rlalgo/run/detail/run_info_impl.hpp>
#include <rlalgo/run/detail/samples_log_impl.hpp>
#include <rlalgo/run/detail/tensorboard_impl.hpp>
