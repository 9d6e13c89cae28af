// Random numbers in streams, so that two fleets meet the same requests (common random numbers).
//
// SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014): one word of state a
// stream, the same numbers on every machine.
#pragma once

#include <cmath>
#include <cstdint>

namespace twin {

// What each stream decides. A request's own numbers come from `requests` in the order of arrivals, whatever the fleet.
enum Stream { arrivals, requests, ties, attempts, failures, worths, stream_count };

class Random {
public:
    explicit Random(uint64_t seed) {
        for (uint64_t number = 0; number < stream_count; ++number)
            state_[number] = seed * 1000003u + number * 0x632BE59BD9B4E019u;
    }

    // In [0, 1).
    double uniform(Stream stream) {
        uint64_t word = state_[stream] += 0x9E3779B97F4A7C15u;
        word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9u;
        word = (word ^ (word >> 27)) * 0x94D049BB133111EBu;
        word ^= word >> 31;
        return static_cast<double>(word >> 11) * 0x1p-53;
    }

    // Exponential with mean 1.
    double exponential(Stream stream) { return -std::log(1.0 - uniform(stream)); }

private:
    uint64_t state_[stream_count];
};

}  // namespace twin
