// config::train of one kind of method, compiled once (RlalgoCompiled.cmake).
#include <rlalgo/config/train.hpp>

#include <rlalgo/config/detail/train_preference.hpp>

template rlalgo::run::Outcome rlalgo::config::detail::Training<void>::preference(const RunConfig&,
                                                                                 const TrainMessages&,
                                                                                 OtherTask*);
