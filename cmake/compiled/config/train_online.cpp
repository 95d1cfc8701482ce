// config::train of one kind of method, compiled once (RlalgoCompiled.cmake).
#include <rlalgo/config/train.hpp>

#include <rlalgo/config/detail/train_online.hpp>

template rlalgo::run::Outcome rlalgo::config::detail::Training<void>::online(const RunConfig&, const TrainMessages&,
                                                                             OtherTask*);
template void rlalgo::config::detail::Training<void>::judge_functions(const RunConfig&, Refusals&);
