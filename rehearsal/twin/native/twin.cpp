// The functions that library.py binds: a cell, and for the tests one gateway's admission alone.
#include <deque>
#include <exception>

#include "cell.h"

using namespace twin;

namespace {

// An admission with the requests that its test names by number.
struct Gateway {
    Rules rules;
    Admission admission;
    std::deque<Request> requests;

    explicit Gateway(const Rules& given) : rules(given), admission(rules, 0.0) {}

    int number(const Request* request) const {
        for (size_t index = 0; index < requests.size(); ++index)
            if (&requests[index] == request) return static_cast<int>(index);
        return -1;
    }
};

}  // namespace

#define API extern "C" __attribute__((visibility("default")))

API Cell* twin_create(const Settings* settings, const Inputs* inputs) { return new Cell(*settings, *inputs); }
API void twin_destroy(Cell* cell) { delete cell; }
API int twin_inside(Cell* cell, int host) { return cell->inside(host); }
API double twin_mean_seconds(Cell* cell, int host) { return cell->mean_seconds(host); }
API int64_t twin_arrived(Cell* cell) { return cell->arrived(); }
API int64_t twin_in_flight(Cell* cell) { return cell->in_flight(); }

API void twin_schedule(Cell* cell, double time, int kind, int what, int value) {
    cell->schedule({time, static_cast<Kind>(kind), what, value});
}

API void twin_bring_in(Cell* cell, int host, int group, int replicas, const double* warm_up, int count) {
    cell->bring_in(host, group, replicas, warm_up, count);
}

API void twin_set_behaviour(Cell* cell, int host, double slowdown, double failing) {
    cell->set_behaviour(host, slowdown, failing);
}

// 0, or 1 where more requests are in flight than any cell should have.
API int twin_advance(Cell* cell, double until) {
    try {
        cell->advance(until);
        return 0;
    } catch (const std::exception&) {
        return 1;
    }
}

API Gateway* gateway_create(const Rules* rules) { return new Gateway(*rules); }
API void gateway_destroy(Gateway* gateway) { delete gateway; }

API int gateway_new(Gateway* gateway, double deadline, double length, double worth) {
    gateway->requests.emplace_back();
    gateway->requests.back().deadline = deadline;
    gateway->requests.back().length = length;
    gateway->requests.back().worth = worth;
    return static_cast<int>(gateway->requests.size()) - 1;
}

API int gateway_certainly_refused(Gateway* gateway, int request, double now, int replicas) {
    return gateway->admission.certainly_refused(gateway->requests[request], now, replicas);
}

API void gateway_ask(Gateway* gateway, int request, double now, int idle, int replicas) {
    gateway->admission.ask(gateway->requests[request], now, idle != 0, replicas);
}

API int gateway_next(Gateway* gateway, double now) { return gateway->number(gateway->admission.next(now)); }
API void gateway_drop_late(Gateway* gateway, double now) { gateway->admission.drop_late(now); }

API void gateway_ended(Gateway* gateway, int request, double now, double seconds, int whole, int replicas) {
    gateway->admission.ended(gateway->requests[request], now, seconds, whole != 0, replicas);
}

// Writes the requests that the last call refused, and returns how many.
API int gateway_dropped(Gateway* gateway, int* numbers) {
    int count = 0;
    for (const Request* request : gateway->admission.dropped) numbers[count++] = gateway->number(request);
    return count;
}

API int gateway_refusal(Gateway* gateway, int request) {
    return static_cast<int>(gateway->requests[request].refusal);
}

API double gateway_latest_start(Gateway* gateway, int request) { return gateway->requests[request].latest_start; }
