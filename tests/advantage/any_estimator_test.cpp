#include <rlalgo/advantage/any_estimator.hpp>

#include <support/catch.hpp>

#include <rlalgo/advantage/group_relative.hpp>
#include <rlalgo/advantage/leave_one_out.hpp>

using namespace rlalgo;

TEST_CASE("any estimator behind one type is that estimator") {
  const std::vector<double> rewards = {1, 0, 0, 1};
  core::Groups groups;
  groups.append(4);
  const advantage::AnyEstimator group{advantage::GroupRelative<>()}, others{advantage::LeaveOneOut()};
  CHECK(group(rewards, groups).advantage == advantage::GroupRelative<>()(rewards, groups).advantage);
  CHECK(others(rewards, groups).advantage == advantage::LeaveOneOut()(rewards, groups).advantage);
  CHECK(group(rewards, groups).advantage != others(rewards, groups).advantage);
}
