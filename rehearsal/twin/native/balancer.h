// The nodes of an Application Load Balancer, each with its own count of outstanding requests by host.
//
// A node sends a request to the host in its rotation with the fewest outstanding through this node (Elastic Load
// Balancing user guide, "Routing algorithms"). That nodes count alone and break ties at random is assumed: no document
// says. A node without any healthy host routes to all of them ("fail open", same guide, "Target group health").
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "random_numbers.h"

namespace twin {

// Keeps the hosts ordered by count, with the place where each count begins, as bucket queues do: choosing, adding and
// subtracting cost the same however many hosts there are.
class Node {
public:
    explicit Node(int hosts) : place_(hosts, -1), count_(hosts, 0), first_(buckets + 1, 0) {}

    // The host for the next request; -1 where none is registered.
    int choose(Random& random) const {
        if (rotation() == 0)
            return order_.empty() ? -1 : order_[static_cast<size_t>(random.uniform(ties) * order_.size())];
        int bucket = 0;
        while (first_[bucket + 1] == first_[bucket]) ++bucket;
        const int equals = first_[bucket + 1] - first_[bucket];
        return order_[first_[bucket] + static_cast<int>(random.uniform(ties) * equals)];
    }

    void sent(int host) {
        const int count = count_[host]++;
        if (count < buckets - 1 && in_rotation(host)) swap(place_[host], --first_[count + 1]);
    }

    // The host has answered, or the client has given up.
    void answered(int host) {
        const int count = count_[host]--;
        if (count <= buckets - 1 && in_rotation(host)) swap(place_[host], first_[count]++);
    }

    // Makes a host known, as unhealthy.
    void add(int host) {
        if (place_[host] >= 0) return;
        place_[host] = static_cast<int>(order_.size());
        order_.push_back(host);
    }

    // Takes a known host into rotation: it has passed its health checks.
    void put_in(int host) {
        if (place_[host] < rotation()) return;
        swap(place_[host], first_[buckets]++);
        for (int bucket = buckets - 1; bucket > bucket_of(host); --bucket) swap(place_[host], first_[bucket]++);
    }

    // Takes a host out of rotation: it has failed its health checks.
    void take_out(int host) {
        if (!in_rotation(host)) return;
        for (int bucket = bucket_of(host) + 1; bucket < buckets; ++bucket) swap(place_[host], --first_[bucket]);
        swap(place_[host], --first_[buckets]);
    }

    // Forgets a host: no new request reaches it.
    void remove(int host) {
        take_out(host);
        if (place_[host] < 0) return;
        swap(place_[host], static_cast<int>(order_.size()) - 1);
        order_.pop_back();
        place_[host] = -1;
    }

    int rotation() const { return first_[buckets]; }
    int outstanding(int host) const { return count_[host]; }

private:
    static constexpr int buckets = 32;  // counts from the last on are one: so many wait only where all hosts are stuck

    bool in_rotation(int host) const { return place_[host] >= 0 && place_[host] < rotation(); }
    int bucket_of(int host) const { return std::min(count_[host], buckets - 1); }

    void swap(int one, int other) {
        std::swap(order_[one], order_[other]);
        place_[order_[one]] = one;
        place_[order_[other]] = other;
    }

    std::vector<int> order_;  // the rotation by ascending count, then the unhealthy
    std::vector<int> place_;  // of each host in order_; -1 for an unknown one
    std::vector<int> count_;
    std::vector<int> first_;  // where each count begins in order_; the last is where the unhealthy begin
};

}  // namespace twin
