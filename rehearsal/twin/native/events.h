// What will happen, earliest first: a binary heap.
#pragma once

#include <cstdint>
#include <vector>

namespace twin {

// The first concern a flight; the others are the control plane's, known ahead.
enum class Kind : int32_t {
    ends, cut, late, answer, given_up, again,
    register_host, put_in, take_out, deregister, host_mode, node_dies,
};

struct Event {
    double time;
    Kind kind;
    int32_t what;   // a flight, or a host
    int32_t value;  // a node, or a host's mode
    uint32_t number = 0;  // of events at the same time, what was scheduled first happens first
};

class Events {
public:
    bool empty() const { return heap_.empty(); }
    double earliest() const { return heap_.front().time; }

    void schedule(Event event) {
        event.number = scheduled_++;
        size_t place = heap_.size();
        heap_.push_back(event);
        for (; place > 0 && is_before(event, heap_[(place - 1) / 2]); place = (place - 1) / 2)
            heap_[place] = heap_[(place - 1) / 2];
        heap_[place] = event;
    }

    Event take() {
        const Event earliest = heap_.front(), last = heap_.back();
        heap_.pop_back();
        const size_t count = heap_.size();
        if (count == 0) return earliest;
        size_t place = 0;
        for (size_t child = 1; child < count; child = 2 * place + 1) {
            if (child + 1 < count && is_before(heap_[child + 1], heap_[child])) ++child;
            if (is_before(last, heap_[child])) break;
            heap_[place] = heap_[child];
            place = child;
        }
        heap_[place] = last;
        return earliest;
    }

private:
    static bool is_before(const Event& one, const Event& other) {
        return one.time < other.time || (one.time == other.time && static_cast<int32_t>(one.number - other.number) < 0);
    }

    uint32_t scheduled_ = 0;
    std::vector<Event> heap_;
};

}  // namespace twin
