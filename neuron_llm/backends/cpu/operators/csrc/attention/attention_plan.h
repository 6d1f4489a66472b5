// How a call of paged attention is cut into tasks.
//
// Tokens are taken in tiles; a tile times a KV head is a group of queries. A group is one task, or
// one for each partition where whole groups would leave threads idle. How work is cut changes no
// bit of a result.
#pragma once

#include <atomic>
#include <vector>

#include "attention_task.h"
#include "memory.h"

namespace neuron_llm {

// Enough queries to make the rearranging of keys and values for them cheap.
constexpr int64_t kRowsPerTile = 96;
// Groups are cut if their partitions' results stay in the second-level cache.
constexpr int64_t kMaxSplitFloats = 1 << 18;
// Parts of the tasks that a thread takes on one after the other: a thread that is held up leaves
// the rest to others.
constexpr int64_t kTurnsPerThread = 4;

struct Tile {
  int64_t first_token;
  int64_t num_tokens;
  int64_t first_partition;
  int64_t end_partition;
};

// The tasks of some queries, which follow each other.
struct Group {
  int64_t first_task;
  int64_t end_task;
};

struct Plan {
  std::vector<Task> tasks;
  std::vector<Group> groups;
  // By group: its tasks that have not ended.
  std::vector<std::atomic<int64_t>> num_unfinished;
  // The results of the tasks of cut groups.
  Memory states;
  int64_t tasks_per_turn;
  // Queries of the largest task.
  int64_t max_rows;
  // Multiplications of all tasks, roughly.
  int64_t num_products;
};

template <typename Element>
std::vector<Tile> plan_tiles(const Attention<Element>& attention) {
  const int64_t size =
      attention.is_decode ? 1 : std::max<int64_t>(1, kRowsPerTile / attention.group_size());
  std::vector<Tile> tiles;
  for (int64_t first = 0; first < attention.num_tokens; first += size) {
    const int64_t num_tokens = std::min(size, attention.num_tokens - first);
    Range keys;
    for (int64_t i = 0; i < num_tokens; ++i) keys = keys.united(attention.visible(first + i));
    tiles.push_back({first, num_tokens, keys.begin / kPartition,
                     (keys.end + kPartition - 1) / kPartition});
  }
  // The last tiles of a prompt see most keys: they come first, so that short ones fill the end.
  std::reverse(tiles.begin(), tiles.end());
  return tiles;
}

template <typename Element>
Plan plan_tasks(const Attention<Element>& attention, int64_t num_threads) {
  const std::vector<Tile> tiles = plan_tiles(attention);
  const int64_t row_floats = RowStates::num_floats(1, attention.head_dim);
  int64_t max_rows = 0, num_rows = 0;
  for (const Tile& tile : tiles) {
    const int64_t tile_rows = tile.num_tokens * attention.group_size();
    max_rows = std::max(max_rows, tile_rows);
    num_rows += tile_rows * attention.num_kv_heads *
                std::max<int64_t>(1, tile.end_partition - tile.first_partition);
  }
  const int64_t num_groups = int64_t(tiles.size()) * attention.num_kv_heads;
  const bool is_cut = num_rows * row_floats <= kMaxSplitFloats || num_groups < 2 * num_threads;
  Plan plan;
  plan.max_rows = max_rows;
  plan.num_products = num_rows * kPartition * 2 * attention.head_dim;
  if (is_cut) plan.states = allocate(num_rows * row_floats * sizeof(float));
  float* states = reinterpret_cast<float*>(plan.states.get());
  for (const Tile& tile : tiles) {
    for (int64_t kv_head = 0; kv_head < attention.num_kv_heads; ++kv_head) {
      const int64_t group = plan.groups.size();
      plan.groups.push_back({int64_t(plan.tasks.size()), 0});
      int64_t first = tile.first_partition;
      do {
        const int64_t end = is_cut ? std::min(first + 1, tile.end_partition) : tile.end_partition;
        plan.tasks.push_back(
            {tile.first_token, tile.num_tokens, kv_head, first, end, group, states});
        if (is_cut) states += tile.num_tokens * attention.group_size() * row_floats;
        first = end;
      } while (first < tile.end_partition);
      plan.groups.back().end_task = plan.tasks.size();
    }
  }
  plan.num_unfinished = std::vector<std::atomic<int64_t>>(num_groups);
  for (int64_t i = 0; i < num_groups; ++i) {
    plan.num_unfinished[i] = plan.groups[i].end_task - plan.groups[i].first_task;
  }
  const int64_t num_turns = is_cut ? kTurnsPerThread * num_threads : plan.tasks.size();
  plan.tasks_per_turn = (int64_t(plan.tasks.size()) + num_turns - 1) / num_turns;
  return plan;
}

}  // namespace neuron_llm
