// service/gateway/admission.py and request_queue.py again, the adaptive order and that of worth, with the same rules and the same
// arithmetic; tests/rehearsal/twin/test_same_rules.py holds both against each other, decision by decision.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "service_times.h"

namespace twin {

enum class Refusal { none, deadline, capacity, engine };

// Times in seconds on the simulated clock; `length` is the prompt's, in characters; `arrival` numbers the requests.
struct Request {
    double deadline = 0.0, length = 0.0, worth = 0.0, arrival = 0.0;
    double seconds = 0.0, latest_start = 0.0;
    bool is_trial = false;
    Refusal refusal = Refusal::none;
};

class Pressure {
public:
    explicit Pressure(const Rules& rules, double now) : rules_(&rules), noted_(now) {}

    bool high() const { return asked_ >= rules_->fewest && refused_ > rules_->high_share * asked_; }

    void asked(double now) {
        fade(now);
        asked_ += 1.0;
    }

    void refused(double now) {
        fade(now);
        refused_ += 1.0;
    }

private:
    void fade(double now) {
        const double kept = std::pow(0.5, (now - noted_) / rules_->half_life);
        noted_ = now;
        asked_ *= kept;
        refused_ *= kept;
    }

    const Rules* rules_;
    double noted_, asked_ = 0.0, refused_ = 0.0;
};

class Admission {
public:
    Admission(const Rules& rules, double now) : times(rules), rules_(&rules), pressure_(rules, now) {}

    ServiceTimes times;
    std::vector<Request*> dropped;  // whom the last call refused

    size_t waiting() const { return waiting_.size(); }

    // Refuses a request that would certainly get no replica; tells whether it did.
    bool certainly_refused(Request& request, double now, int replicas) {
        dropped.clear();
        request.arrival = arrivals_++;
        expect(request, now);
        Refusal reason = Refusal::none;
        if (replicas == 0)
            reason = Refusal::engine;
        else if (is_full(replicas) && !(worth(*waiting_[least(now)], now) < worth(request, now)))
            reason = Refusal::capacity;
        if (reason == Refusal::none) return false;
        pressure_.asked(now);
        refuse(request, now, reason);
        return true;
    }

    // Unless refused, the request starts now where a replica is idle, and has joined the line where none is.
    void ask(Request& request, double now, bool idle, int replicas) {
        dropped.clear();
        pressure_.asked(now);
        request.arrival = arrivals_++;
        replicas_ = std::max(replicas, 1);
        if (replicas == 0) return refuse(request, now, Refusal::engine);
        expect(request, now);
        if (idle) {
            if (!may_start(request, now)) refuse(request, now, Refusal::deadline);
            return;
        }
        const double needed = times.quantile(now, rules_->quantile, request.length);
        request.latest_start = request.deadline - (needed != 0.0 ? needed : rules_->first_expectation);
        if (request.latest_start < now) return refuse(request, now, Refusal::deadline);
        if (is_full(replicas)) {
            const size_t place = least(now);
            Request& worst = *waiting_[place];
            if (!(worth(worst, now) < worth(request, now))) return refuse(request, now, Refusal::capacity);
            remove(place);
            refuse(worst, now, Refusal::capacity);
        }
        join(request, now, replicas);
    }

    // Whose turn it is now that a replica is free; null when nobody waits.
    Request* next(double now) {
        if (waiting_.empty()) return nullptr;
        bool is_short = pressure_.high();
        if (rules_->by_worth && !is_short) is_short = serves_newest(now) || !all_in_time(now);
        if (!is_short) return remove(serves_newest(now) ? waiting_.size() - 1 : 0);
        size_t best = 0;
        for (size_t place = 1; place < waiting_.size(); ++place)
            if (worth(*waiting_[best], now) < worth(*waiting_[place], now)) best = place;
        return remove(best);
    }

    // Refuses the waiters that can no longer finish in time.
    void drop_late(double now) {
        dropped.clear();
        for (size_t place = 0; place < waiting_.size();)
            if (waiting_[place]->latest_start <= now)
                refuse(*remove(place), now, Refusal::capacity);
            else
                ++place;
        if (!dropped.empty()) overloaded_until_ = now + rules_->overload_seconds;
    }

    void ended(const Request& request, double now, double seconds, bool whole, int replicas) {
        times.add(now, seconds, request.length, whole, !whole && now >= request.deadline);
        if (whole) last_whole_ = now;
        if (!request.is_trial) return;
        const double share = now - last_whole_ < rules_->fresh ? rules_->trial_share_beside : rules_->trial_share;
        const double pause = seconds * std::max(1 / (share * std::max(replicas, 1)) - 1, 0.0);
        next_trial_ = now + (whole ? 0.0 : pause);
    }

private:
    // What it is worth, then who came first; or else plans a second of replica time, then the shorter prompt.
    using Worth = std::pair<double, double>;

    bool all_in_time(double now) const {
        double before = 0.0;
        for (const Request* request : waiting_) {
            if (now + before / replicas_ > request->latest_start) return false;
            before += request->seconds;
        }
        return true;
    }

    bool serves_newest(double now) const { return now < overloaded_until_; }
    bool is_full(int replicas) const {
        const int most = replicas * (rules_->by_worth ? rules_->waiting_by_worth : 1);
        return pressure_.high() && waiting_.size() >= static_cast<size_t>(most);
    }

    void expect(Request& request, double now) {
        const double seconds = times.expected(now, request.length);
        request.seconds = seconds != 0.0 ? seconds : rules_->first_expectation;
        request.refusal = Refusal::none;
        request.is_trial = false;
    }

    void refuse(Request& request, double now, Refusal reason) {
        request.refusal = reason;
        dropped.push_back(&request);
        pressure_.refused(now);
    }

    Request* remove(size_t place) {
        Request* request = waiting_[place];
        waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(place));
        return request;
    }

    Worth worth(const Request& request, double now) {
        if (rules_->by_worth) return {request.worth, -request.arrival};
        return {times.chance(now, request.deadline - now, request.length) / request.seconds, -request.length};
    }

    size_t least(double now) {
        size_t worst = 0;
        for (size_t place = 1; place < waiting_.size(); ++place)
            if (worth(*waiting_[place], now) < worth(*waiting_[worst], now)) worst = place;
        return worst;
    }

    bool may_start(Request& request, double now) {
        const double remaining = request.deadline - now;
        const double enough = pressure_.high() ? rules_->hopeless_under_pressure : rules_->hopeless;
        if (times.chance(now, remaining, request.length) >= enough) return true;
        if (remaining <= 0 || now < next_trial_) return false;
        request.is_trial = true;
        next_trial_ = std::numeric_limits<double>::infinity();
        return true;
    }

    size_t soonest() const {
        const auto before = [](const Request* a, const Request* b) { return a->latest_start < b->latest_start; };
        return static_cast<size_t>(std::min_element(waiting_.begin(), waiting_.end(), before) - waiting_.begin());
    }

    // Adds one to the line, and refuses the excess of a line that is too long.
    void join(Request& newest, double now, int replicas) {
        waiting_.push_back(&newest);
        while (true) {
            double before = 0.0, longest = newest.latest_start;
            for (const Request* request : waiting_) {
                before += request->seconds;
                if (rules_->by_worth || serves_newest(now)) longest = std::max(longest, request->latest_start);
            }
            before -= waiting_.back()->seconds;
            if (before / replicas <= longest - now) return;
            overloaded_until_ = now + rules_->overload_seconds;
            Request* hopeless = remove(rules_->by_worth ? least(now) : soonest());
            refuse(*hopeless, now, Refusal::capacity);
            if (hopeless == &newest) return;
        }
    }

    const Rules* rules_;
    Pressure pressure_;
    std::vector<Request*> waiting_;  // oldest first
    double overloaded_until_ = -std::numeric_limits<double>::infinity();
    double arrivals_ = 0.0;
    int replicas_ = 1;  // when it was asked last
    double next_trial_ = -std::numeric_limits<double>::infinity();
    double last_whole_ = -std::numeric_limits<double>::infinity();  // when a generation last ended whole
};

}  // namespace twin
