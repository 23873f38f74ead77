// SPDX-License-Identifier: MIT
#include "db_bulkhead/detail/wait_queue.hpp"

#include <vector>

#include "catch.hpp"

namespace {

struct Node {
  int number = 0;
  Node* ahead = nullptr;
  Node* behind = nullptr;
};

using Queue = db_bulkhead::detail::WaitQueue<Node>;

std::vector<int> drain(Queue& queue) {
  std::vector<int> order;
  while (!queue.empty()) {
    Node& node = *queue.first();
    order.push_back(node.number);
    queue.remove(node);
  }
  return order;
}

bool is_unlinked(Node const& node) {
  return node.ahead == nullptr && node.behind == nullptr;
}

}  // namespace

TEST_CASE("a new queue is empty") {
  Queue const queue;
  CHECK(queue.empty());
  CHECK(queue.size() == 0);
  CHECK(queue.first() == nullptr);
}

TEST_CASE("a queue gives its waiters back in the order in which they came") {
  Queue queue;
  Node one{1}, two{2}, three{3};
  queue.push_last(one);
  queue.push_last(two);
  queue.push_last(three);
  CHECK(queue.size() == 3);
  CHECK(drain(queue) == std::vector{1, 2, 3});
}

TEST_CASE("whoever leaves a queue leaves the order of the others as it was") {
  Node nodes[] = {{1}, {2}, {3}};
  int const leaver = GENERATE(0, 1, 2);
  std::vector<int> expected;
  Queue queue;
  for (int i = 0; i < 3; ++i) {
    queue.push_last(nodes[i]);
    if (i != leaver) expected.push_back(nodes[i].number);
  }
  queue.remove(nodes[leaver]);
  CHECK(queue.size() == 2);
  CHECK(is_unlinked(nodes[leaver]));
  CHECK(drain(queue) == expected);
}

TEST_CASE("a queue that was emptied can be used again, by the same waiter too") {
  Queue queue;
  Node one{1}, two{2};
  queue.push_last(one);
  queue.remove(one);
  CHECK(queue.empty());
  CHECK(queue.size() == 0);
  queue.push_last(two);
  queue.push_last(one);
  CHECK(drain(queue) == std::vector{2, 1});
  CHECK(is_unlinked(one));
  CHECK(is_unlinked(two));
}
