// One cell, request by request, from its client to its answer. The control plane, in Python, reads and changes it
// between two calls of `advance`, and schedules ahead what it knows.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

#include "admission.h"
#include "balancer.h"
#include "events.h"
#include "random_numbers.h"

namespace twin {

constexpr int bins = 4096, bins_a_second = 4000;  // of latency histograms; the last bin is everything above
constexpr int replay_columns = 6;
constexpr size_t most_flights = size_t{1} << 20;

enum Outcome : int32_t { by_model, cached, by_choice, by_rule, shed, failed, outcome_count };
enum class Mode : int32_t { serves, black_hole, refuses, gone };
// What a host's telemetry counts: requests that wanted the model, answers, plans by the reader for want of it among them, 503.
enum Count { asked, answered, degraded, reported_shed, count_count };

// Constants of a run, in seconds unless named otherwise; cell.py says where they come from.
struct Settings {
    double allowed;         // from a request's arrival at the gateway until its answer must be written
    double overhead;        // of balancer, network, TLS and gateway, on every answer
    double rule;            // for a plan by the reader
    double cached;          // for a plan from the cache
    double forward;         // that a replica works on after the deadline, at most
    double client_timeout;  // after which a client gives up an attempt
    double backoff;         // before a client's next attempt
    double cache_seconds;   // for which a plan is remembered
    double window;          // of the outcomes' counts
    double choice;          // the worth below which the reader plans by choice; 0: none
    uint64_t seed;
    int32_t retries;      // further attempts after one that failed
    int32_t shed_inside;  // requests inside one host's gateway, beyond which it answers 503
    int32_t nodes, hosts, groups, bands, table, questions, windows, seconds, replayed;
    int32_t shared_cache, worths;
    Rules rules;
};

// Arrays that belong to Python. Shapes in brackets.
struct Inputs {
    const double* times;           // [groups, bands, table]: service seconds by quantile
    const double* band_share;      // [bands]: cumulated shares of question lengths
    const double* band_length;     // [bands]: characters of the prompt
    const double* question_share;  // [questions]: cumulated by rank; none where nothing is remembered
    const double* worths;          // [bands, worths]: what the model's plan is worth by quantile
    const double* rates;           // [seconds]: arrivals a second
    const double* replay;          // [replayed, 6]: at, service seconds, characters, allowed seconds, worth, question or
                                   // -1; not rates
    int64_t* outcomes;             // [windows, outcome_count]: by the window in which the request was first sent
    int64_t* latencies;            // [bins]: of answers, as the clients see them
    int64_t* model_latencies;      // [groups, bins]: of plans by the model, as the gateway reports them
    int64_t* queue_times;          // [groups, bins]
    int64_t* host_counts;          // [hosts, count_count]
    double* remembered_until;      // [hosts or 1, questions]
};

struct Host {
    Admission admission;
    Mode mode = Mode::gone;
    int group = 0, replicas = 0, idle = 0, inside = 0;
    double slowdown = 1.0, failing = 0.0;  // a factor of service times; a share of generations that give no plan
};

struct Flight : Request {
    double first_sent = 0.0, sent = 0.0, began = 0.0;
    double service = -1.0, luck = 0.0;  // replayed seconds; below 0, the quantile `luck` is drawn
    double allowed = 0.0;               // from an attempt's arrival at a gateway until its answer must be written
    int32_t host = 0, node = 0, band = 0, question = -1, attempt = 0;
    Outcome outcome = failed;
    bool open = false, running = false;  // the client waits; a replica works on it
};

class Cell {
public:
    Cell(const Settings& settings, const Inputs& inputs)
        : settings_(settings), in_(inputs), random_(settings.seed), nodes_(settings.nodes, Node(settings.hosts)) {
        hosts_.reserve(settings.hosts);
        for (int host = 0; host < settings.hosts; ++host) hosts_.push_back({Admission(settings_.rules, 0.0)});
        for (int node = 0; node < settings.nodes; ++node) alive_.push_back(node);
        flights_.reserve(most_flights);  // pointers to flights must stay valid; untouched memory costs nothing
    }

    void schedule(const Event& event) { events_.schedule(event); }
    int inside(int host) const { return hosts_[host].inside; }
    double mean_seconds(int host) { return hosts_[host].admission.times.mean(now_); }
    int64_t arrived() const { return arrived_; }
    int64_t in_flight() const { return static_cast<int64_t>(flights_.size() - free_.size()); }
    void set_behaviour(int host, double slowdown, double failing) {
        hosts_[host].slowdown = slowdown;
        hosts_[host].failing = failing;
    }

    // Starts a host's gateway: its replicas are idle and have generated their warm-up requests. No node knows it yet.
    void bring_in(int number, int group, int replicas, const double* warm_up, int count) {
        hosts_[number] = {Admission(settings_.rules, now_), Mode::serves, group, replicas, replicas};
        std::fill_n(in_.host_counts + number * count_count, static_cast<int>(count_count), 0);
        for (int index = 0; index < count; ++index)
            hosts_[number].admission.times.add(now_, warm_up[index], in_.band_length[index % settings_.bands], true);
    }

    // Simulates everything that happens before `until`.
    void advance(double until) {
        while (true) {
            if (next_arrival_ < 0.0) next_arrival_ = settings_.replayed ? next_replayed() : next_drawn();
            const bool arrives = events_.empty() || next_arrival_ < events_.earliest();
            const double time = arrives ? next_arrival_ : events_.earliest();
            if (!(time < until)) break;
            now_ = time;
            if (arrives)
                arrive();
            else
                happen(events_.take());
        }
        now_ = until;
    }

private:
    double next_replayed() const {
        return arrived_ < settings_.replayed ? in_.replay[replay_columns * arrived_] : std::numeric_limits<double>::infinity();
    }

    // The next arrival of a Poisson process whose rate is constant within each second.
    double next_drawn() {
        double unit = random_.exponential(arrivals), at = now_;
        for (int second = static_cast<int>(now_); second < settings_.seconds; at = ++second) {
            const double room = (second + 1 - at) * in_.rates[second];
            if (unit < room) return at + unit / in_.rates[second];
            unit -= room;
        }
        return std::numeric_limits<double>::infinity();
    }

    void arrive() {
        Flight& flight = new_flight();
        flight.first_sent = now_;
        const double chosen = random_.uniform(requests);
        if (settings_.replayed) {
            const double* row = in_.replay + replay_columns * arrived_;
            flight.service = row[1];
            flight.length = row[2];
            flight.allowed = row[3];
            flight.worth = row[4];
            flight.question = static_cast<int>(row[5]);
        } else {
            flight.allowed = settings_.allowed;
            flight.luck = random_.uniform(requests);
            if (settings_.bands > 1) flight.band = drawn(in_.band_share, settings_.bands);
            flight.length = in_.band_length[flight.band];
            if (settings_.questions) flight.question = drawn(in_.question_share, settings_.questions);
            const int place = static_cast<int>(random_.uniform(worths) * settings_.worths);
            flight.worth = in_.worths[static_cast<int64_t>(flight.band) * settings_.worths + place];
        }
        ++arrived_;
        next_arrival_ = -1.0;
        send(flight, chosen);
    }

    int drawn(const double* cumulated, int count) {
        const double share = random_.uniform(requests);
        return std::min<int>(static_cast<int>(std::upper_bound(cumulated, cumulated + count, share) - cumulated),
                             count - 1);
    }

    // The node that `chosen` names, in [0, 1), gives the request to a host.
    void send(Flight& flight, double chosen) {
        flight.sent = now_;
        flight.node = alive_[static_cast<size_t>(chosen * static_cast<double>(alive_.size()))];
        flight.host = nodes_[flight.node].choose(random_);
        if (flight.host < 0) return close(flight, failed);  // the balancer has no target: it answers 503 itself
        nodes_[flight.node].sent(flight.host);
        Host& host = hosts_[flight.host];
        ++host.inside;
        if (host.mode == Mode::serves)
            enter(flight, host);
        else if (host.mode == Mode::black_hole)
            schedule({now_ + settings_.client_timeout, Kind::given_up, index(flight), 0});
        else
            answer_later(flight, failed, settings_.overhead);
    }

    // Follows a request through the gateway of its host.
    void enter(Flight& flight, Host& host) {
        int64_t* counts = in_.host_counts + flight.host * count_count;
        if (host.inside > settings_.shed_inside) {
            ++counts[reported_shed];
            return answer_later(flight, shed, 0.0);
        }
        if (flight.question >= 0 && remembered(flight) > now_) return answer_later(flight, cached, settings_.cached);
        if (flight.worth < settings_.choice) return answer_later(flight, by_choice, settings_.rule);
        flight.deadline = now_ + flight.allowed;
        ++counts[asked];
        const bool idle = host.idle > 0;
        if (!host.admission.certainly_refused(flight, now_, host.replicas))
            host.admission.ask(flight, now_, idle, host.replicas);
        answer_dropped(host);
        if (flight.refusal != Refusal::none) return;
        if (idle)
            start(flight, host);
        else
            schedule({flight.latest_start, Kind::late, flight.host, 0});
    }

    double& remembered(const Flight& flight) {
        const int64_t row = settings_.shared_cache ? 0 : flight.host;
        return in_.remembered_until[row * settings_.questions + flight.question];
    }

    void answer_dropped(Host& host) {
        for (Request* request : host.admission.dropped)
            answer_later(static_cast<Flight&>(*request), by_rule, settings_.rule);
    }

    // Gives the request a replica, until its generation ends or one forward after its deadline.
    void start(Flight& flight, Host& host) {
        --host.idle;
        flight.began = now_;
        flight.running = true;
        double seconds = flight.service;
        if (seconds < 0.0) {
            const int64_t row = static_cast<int64_t>(host.group) * settings_.bands + flight.band;
            seconds = in_.times[row * settings_.table + static_cast<int>(flight.luck * settings_.table)];
        }
        seconds *= host.slowdown;
        if (now_ + seconds > flight.deadline) {
            const double left = std::max(flight.deadline - now_, 0.0);
            schedule({now_ + left, Kind::cut, index(flight), 0});
            seconds = std::min(seconds, left + settings_.forward);
        }
        schedule({now_ + seconds, Kind::ends, index(flight), 0});
    }

    // Frees the replica, lets the next one in line start, and answers unless the deadline has.
    void end(Flight& flight) {
        Host& host = hosts_[flight.host];
        ++host.idle;
        const bool whole = now_ <= flight.deadline;
        host.admission.ended(flight, now_, now_ - flight.began, whole, host.replicas);
        if (Request* next = host.admission.next(now_)) start(static_cast<Flight&>(*next), host);
        if (whole) {
            if (host.failing > 0.0 && random_.uniform(failures) < host.failing) {
                answer_later(flight, by_rule, settings_.rule);
            } else {
                flight.outcome = by_model;
                answer(flight);
            }
        }
        flight.running = false;
        let_go(flight);
    }

    void answer_later(Flight& flight, Outcome outcome, double seconds) {
        flight.outcome = outcome;
        schedule({now_ + seconds, Kind::answer, index(flight), 0});
    }

    // The host's answer reaches the balancer, and the client unless the host is cut off.
    void answer(Flight& flight) {
        const Mode mode = hosts_[flight.host].mode;
        if (mode == Mode::black_hole) {
            const double given_up = std::max(now_, flight.sent + settings_.client_timeout);
            return schedule({given_up, Kind::given_up, index(flight), 0});
        }
        if (mode == Mode::refuses) flight.outcome = failed;
        if (flight.outcome <= by_rule) report(flight);
        leave(flight);
        close(flight, flight.outcome);
    }

    // Counts the answer in the host's telemetry; the gateway remembers what the model planned.
    void report(const Flight& flight) {
        int64_t* counts = in_.host_counts + flight.host * count_count;
        ++counts[answered];
        if (flight.outcome == by_rule) ++counts[degraded];
        if (flight.outcome != by_model) return;
        const int64_t row = static_cast<int64_t>(hosts_[flight.host].group) * bins;
        ++in_.model_latencies[row + bin(now_ - flight.sent)];
        ++in_.queue_times[row + bin(flight.began - flight.sent)];
        if (flight.question >= 0) remembered(flight) = now_ + settings_.cache_seconds;
    }

    void leave(const Flight& flight) {
        nodes_[flight.node].answered(flight.host);
        --hosts_[flight.host].inside;
    }

    // Ends the attempt for its client: with an answer, with a failure, or with another attempt to come.
    void close(Flight& flight, Outcome outcome) {
        if (outcome >= shed && flight.attempt < settings_.retries) {
            Flight& again = new_flight();
            const bool running = again.running;
            again = flight;
            again.running = running;
            ++again.attempt;
            schedule({now_ + settings_.backoff, Kind::again, index(again), 0});
        } else {
            const int64_t window = static_cast<int64_t>(flight.first_sent / settings_.window);
            ++in_.outcomes[window * outcome_count + outcome];
            ++in_.latencies[bin(now_ - flight.first_sent + settings_.overhead)];
        }
        flight.open = false;
        let_go(flight);
    }

    void happen(const Event& event) {
        switch (event.kind) {
            case Kind::ends: return end(flights_[event.what]);
            case Kind::answer: return answer(flights_[event.what]);
            case Kind::cut: return answer_later(flights_[event.what], by_rule, settings_.rule);
            case Kind::again: return send(flights_[event.what], random_.uniform(attempts));
            case Kind::late:
                hosts_[event.what].admission.drop_late(now_);
                return answer_dropped(hosts_[event.what]);
            case Kind::given_up:
                leave(flights_[event.what]);
                return close(flights_[event.what], failed);
            case Kind::register_host: return nodes_[event.value].add(event.what);
            case Kind::put_in: return nodes_[event.value].put_in(event.what);
            case Kind::take_out: return nodes_[event.value].take_out(event.what);
            case Kind::deregister: return nodes_[event.value].remove(event.what);
            case Kind::host_mode: hosts_[event.what].mode = static_cast<Mode>(event.value); return;
            case Kind::node_dies:
                if (alive_.size() > 1) alive_.erase(std::remove(alive_.begin(), alive_.end(), event.value), alive_.end());
        }
    }

    Flight& new_flight() {
        if (free_.empty()) {
            if (flights_.size() == most_flights) throw std::length_error("a million requests in flight in one cell");
            flights_.emplace_back();
            flights_.back().open = true;
            return flights_.back();
        }
        Flight& flight = flights_[free_.back()];
        free_.pop_back();
        flight = Flight();
        flight.open = true;
        return flight;
    }

    void let_go(const Flight& flight) {
        if (!flight.open && !flight.running) free_.push_back(index(flight));
    }

    int32_t index(const Flight& flight) const { return static_cast<int32_t>(&flight - flights_.data()); }
    static int bin(double seconds) { return std::min(static_cast<int>(seconds * bins_a_second), bins - 1); }

    const Settings settings_;
    const Inputs in_;
    Random random_;
    std::vector<Node> nodes_;
    std::vector<int> alive_;  // nodes that take requests
    std::vector<Host> hosts_;
    std::vector<Flight> flights_;
    std::vector<int32_t> free_;
    Events events_;
    double now_ = 0.0, next_arrival_ = -1.0;  // below 0: to be drawn
    int64_t arrived_ = 0;
};

}  // namespace twin
