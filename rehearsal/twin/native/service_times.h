// service/gateway/service_times.py again, with the same rules and the same arithmetic: Python is too slow for a hundred
// million requests. tests/rehearsal/twin/test_same_rules.py holds both against each other, decision by decision.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

namespace twin {

// The gateway's own constants; Python fills them in from the gateway's modules, so that each has one source.
struct Rules {
    double quantile, first_expectation, hopeless, hopeless_under_pressure, trial_share, trial_share_beside, fresh;
    double half_life, high_share, fewest, overload_seconds;
    double max_age, outlier, flat_prior, about;
    int window, kept, most_late;
    int by_worth, waiting_by_worth;  // whether those that wait go in the order of their worth, and how many a replica
    int refit_every;  // 1: after each generation, as the gateway
};

class ServiceTimes {
public:
    explicit ServiceTimes(const Rules& rules)
        : rules_(&rules), seen_(rules.window), ratios_(rules.window), late_(rules.most_late) {}

    // `late`: cut short by its deadline.
    void add(double now, double seconds, double length, bool whole, bool late = false) {
        if (late) {
            if (late_count_ == rules_->most_late) pop_late();
            late_[late_place(late_count_++)] = {now, seconds, length, false};
            whole = false;
        }
        if (!whole && seconds <= quantile(now, 0.5, length)) return;
        if (count_ == rules_->window) pop();
        seen_[place(count_++)] = {now, seconds, length, whole};
        ++changes_;
        forget(now);
    }

    // The duration within which `share` of generations of this length end; 0 when unknown.
    double quantile(double now, double share, double length) {
        if (!known(now)) return 0.0;
        if (share != quantile_share_) {
            std::copy_n(ratios_.begin(), fitted_, scratch().begin());
            quantile_ratio_ = smallest(static_cast<int>(share * (fitted_ - 1)), fitted_);
            quantile_share_ = share;
        }
        return quantile_ratio_ * line(length);
    }

    // The mean duration of a generation of this length; 0 when unknown.
    double expected(double now, double length) { return known(now) ? line(length) : 0.0; }

    // The share of generations of this length that take at most `seconds`; 1 when unknown. Where some were late, it is at
    // most the share that ended of those that tell.
    double chance(double now, double seconds, double length) {
        if (!known(now) || !tells_of(length)) return 1.0;
        const double fitted = fitted_chance(seconds / line(length));
        int late = 0;
        for (int index = 0; index < late_count_; ++index) {
            const Seen& each = late_[late_place(index)];
            late += each.length <= rules_->about * length && rules_->about * each.seconds >= seconds;
        }
        if (late == 0) return fitted;
        int ended = 0;
        for (int index = 0; index < count_; ++index) {
            const Seen& each = entry(index);
            ended += each.whole && rules_->about * each.length >= length && each.seconds <= seconds;
        }
        return std::min(fitted, static_cast<double>(ended) / (ended + late));
    }

    double mean(double now) {
        forget(now);
        double sum = 0.0;
        for (int index = 0; index < count_; ++index) sum += entry(index).seconds;
        return count_ ? sum / count_ : 0.0;
    }

private:
    struct Seen {
        double at, seconds, length;
        bool whole;
    };

    // A window of more than so many is fitted after every `refit_every` changes: an eighth of the window moves its
    // quantiles by less than they vary anyway, and fitting after each would take half of all the time.
    static constexpr int often = 32;

    int place(int index) const {
        const int place = head_ + index;  // a remainder would take most of the time of a fit
        return place < rules_->window ? place : place - rules_->window;
    }

    int late_place(int index) const { return (late_head_ + index) % rules_->most_late; }

    const Seen& entry(int index) const { return seen_[place(index)]; }
    double line(double length) const { return base_ + slope_ * length; }

    void pop() {
        head_ = place(1);
        --count_;
        ++changes_;
    }

    void pop_late() {
        late_head_ = late_place(1);
        --late_count_;
    }

    void forget(double now) {
        while (count_ > rules_->kept && entry(0).at < now - rules_->max_age) pop();
        while (late_count_ > 0 && late_[late_head_].at < now - rules_->max_age) pop_late();
    }

    // Longer ones that were cut short tell nothing of this length.
    bool tells_of(double length) const {
        for (int index = 0; index < count_; ++index)
            if (entry(index).whole || entry(index).length <= rules_->about * length) return true;
        return false;
    }

    double fitted_chance(double ratio) const {
        if (ratio >= longest_) return 1.0;
        int within = 0;
        for (int index = 0; index < fitted_; ++index) within += ratios_[index] <= ratio;
        return static_cast<double>(within) / fitted_;
    }

    bool known(double now) {
        forget(now);
        if (count_ == 0) return false;
        if (changes_ >= (count_ > often ? rules_->refit_every : 1)) fit();
        return true;
    }

    // Least squares with a slope of at least 0, outliers held; then every ratio of real to fitted seconds.
    void fit() {
        const double most = highest_counted();
        double mean_length = 0.0, mean_seconds = 0.0, covariance = 0.0, variance = 0.0;
        for (int index = 0; index < count_; ++index) {
            mean_length += entry(index).length;
            mean_seconds += std::min(entry(index).seconds, most);
        }
        mean_length /= count_;
        mean_seconds /= count_;
        for (int index = 0; index < count_; ++index) {
            const double length = entry(index).length - mean_length;
            covariance += length * (std::min(entry(index).seconds, most) - mean_seconds);
            variance += length * length;
        }
        const double steepest = mean_length != 0.0 ? mean_seconds / mean_length : 0.0;
        slope_ = std::min(std::max(covariance / (variance + rules_->flat_prior), 0.0), steepest);
        base_ = std::max(mean_seconds - slope_ * mean_length, 1e-6);
        longest_ = 0.0;
        for (int index = 0; index < count_; ++index) {
            ratios_[index] = entry(index).seconds / line(entry(index).length);
            longest_ = std::max(longest_, ratios_[index]);
        }
        fitted_ = count_;
        quantile_share_ = -1.0;
        changes_ = 0;
    }

    // The seconds as which outliers count: so many times the median, which is looked for only where there are any.
    double highest_counted() {
        std::vector<double>& seconds = scratch();
        const int middle = static_cast<int>(0.5 * (count_ - 1));
        double slowest = 0.0;
        for (int index = 0; index < count_; ++index) slowest = std::max(slowest, seconds[index] = entry(index).seconds);
        int far_below = 0;
        for (int index = 0; index < count_; ++index) far_below += rules_->outlier * seconds[index] < slowest;
        return far_below <= middle ? slowest : rules_->outlier * smallest(middle, count_);
    }

    // What would be at `place` if the first `count` numbers of the scratch were sorted.
    double smallest(int place, int count) {
        const auto found = scratch().begin() + place;
        std::nth_element(scratch().begin(), found, scratch().begin() + count);
        return *found;
    }

    // One for all hosts, so that it stays in the processor's nearest cache.
    std::vector<double>& scratch() const {
        static thread_local std::vector<double> shared;
        if (shared.size() < seen_.size()) shared.resize(seen_.size());
        return shared;
    }

    const Rules* rules_;
    std::vector<Seen> seen_;      // a ring
    std::vector<double> ratios_;  // of the last fit, `fitted_` of them
    std::vector<Seen> late_;      // a ring
    int late_head_ = 0, late_count_ = 0;
    int head_ = 0, count_ = 0, changes_ = 0, fitted_ = 0;
    double base_ = 0.0, slope_ = 0.0, longest_ = 0.0;
    double quantile_share_ = -1.0, quantile_ratio_ = 0.0;  // the last one asked for since the fit
};

}  // namespace twin
