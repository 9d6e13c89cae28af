"""The tables of figures about the service under load, under Triton, and as its fleet scales."""

from typing import Any


def provenance(figure: dict[str, Any], what: str) -> str:
    """Return the line that says which command measured a figure, on what, and where."""
    machine = figure["machine"]
    where = f"{machine['cores']} cores of {machine['processor']}, torch {machine['torch']}"
    return f"<sub>`{figure['command']}`: {what}, {where}.</sub>"


def render_question_cost(figure: dict[str, Any]) -> str:
    """Return what the dearest question costs, on every machine that `peakplan bench costs` ran on."""
    lines = ["| machine | rules, ms | whole gateway, ms | operations | questions tried |", "|---|---:|---:|---:|---:|"]
    for name, one in figure["machines"].items():
        costs = f"{one['rules']['ms']} | {one['gateway']['ms']} | {one['operations']:,} | {one['questions']:,}"
        lines.append(f"| {name} | {costs} |")
    budget = one["budget"]
    most = f"{budget['rules_ms']:g} | {budget['gateway_ms']:g} | {budget['operations']:,}"
    return "\n".join((*lines, f"| at most | {most} | |", "", provenance(one, "the dearest of all")))


def render_serving(figure: dict[str, Any]) -> str:
    """Return the results of the service under load and with failures, and its gateway's cost."""
    steady, over, cache = figure["steady"], figure["overload"]["adaptive"], figure["cache"]
    gateway, kept = figure["overhead"]["gateway_ms"], over["answered_within_deadline_and_allowance"]
    bodies = over["mean_body_bytes"]
    rows = [
        ("capacity", f"{figure['capacity']['plans_per_second']} plans per second, each of them decoded"),
        (
            f"{steady['share_of_capacity']:.0%} of it, Poisson arrivals, {steady['seconds']:.0f} s",
            f"p50 {steady['latency_ms']['p50']} ms, p99 {steady['latency_ms']['p99']} ms, "
            f"{steady['source_shares'].get('fallback', 0):.1%} planned by rule",
        ),
        (
            f"{over['times_capacity']} times it, {over['seconds']:.0f} s",
            f"goodput {over['goodput_share_of_capacity']:.1%} of capacity, from shorter questions "
            f"({bodies['by_model']:.0f} bytes per body, against {bodies['all']:.0f} overall); "
            f"{over['model_answers_in_deadline']:.2%} of the model's answers in time, {kept:.3%} of all answers "
            f"within 50 ms of the deadline; memory grew {over['server_memory_grown_mib']} MiB; recovered in "
            f"{over['recovered_after_seconds']} s",
        ),
        (
            f"repeated questions (Zipf {cache['zipf_exponent']})",
            f"{cache['hit_ratio']:.1%} from the cache, p50 {cache['latency_ms']['p50']} ms",
        ),
        ("latency that the gateway adds to the engine", f"p50 {gateway['p50']} ms, p99 {gateway['p99']} ms"),
    ]
    for name, fault in figure["faults"].items():
        lost = sum(fault["errors"].values()) + fault["sources"].get("shed", 0)
        told = f"{lost} requests lost; full capacity after {fault['full_capacity_after_seconds']} s"
        rows.append((f"{name}, at half of capacity", told))
    table = ["| load | result |", "|---|---|", *(f"| {name} | {what} |" for name, what in rows)]
    return "\n".join([*table, "", provenance(figure, "the load generator on the same cores")])


def render_passed(figure: dict[str, Any]) -> str:
    """Return how many plans pass at 1 to 10 times the capacity; of both services, chance's first."""
    rows = [
        "| times capacity | passed by chance | by worth | more by worth | passed a second | by the model a second |"
        " past the deadline |",
        "|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for load in figure["loads"]:
        chance, worth, (more, low, high) = load["chance"], load["worth"], load["more_by_worth"]
        names = ("passed_per_second", "model_plans_in_time_per_second", "past_deadline")
        cells = [f"{load['times']:g}", f"{chance['passed_share']:.1%}", f"{worth['passed_share']:.1%}"]
        cells += [f"{100 * more:+.1f} points [{100 * low:.1f}, {100 * high:.1f}]"]
        cells += [f"{chance[name]}, {worth[name]}" for name in names]
        rows.append(f"| {' | '.join(cells)} |")
    machine = figure["machine"]
    said = (
        f"<sub>`{figure['command']}`: {figure['cases']} cases ({', '.join(figure['sets'])}), "
        f"{figure['seconds']:g} s of "
        f"each service and load in turns, capacity {figure['capacity']} plans a second of one replica, the load "
        f"generator on the same {machine['cores']} cores of {machine['processor']}.</sub>"
    )
    return "\n".join([*rows, "", said])


def render_routing(figure: dict[str, Any]) -> str:
    """Return what routing `always` saves, in core milliseconds a plan."""
    core, machine, by_rule = figure["core_ms"], figure["machine"], figure["planned_by_rule"]
    return (
        f"Routing `always` takes {core['always']:.1f} core milliseconds a plan, {figure['share_of_off']:.1%} of the "
        f"{core['off']:.1f} with routing `off`: rules plan {by_rule:.1%} of the questions by choice, "
        f"in {figure['rules_core_ms']:.2f} ms.\n\n<sub>`{figure['command']}`: {figure['questions']} dev questions, "
        f"each the best of {figure['rounds']} turns, CPU time of one thread, {machine['cores']} cores of "
        f"{machine['processor']}.</sub>"
    )


def render_triton(figure: dict[str, Any]) -> str:
    """Return what Triton adds to a generation, and its recovery times."""
    added, recovery = figure["added_p50_ms"], figure["recovery"]
    seconds = ", ".join(f"{each:g}" for each in recovery["seconds_to_full_capacity"])
    text = (
        f"{figure['identical_tokens']} of {figure['questions']['count']} questions get exactly the same tokens as in "
        f"process. gRPC and Triton {figure['tritonserver']} add {added['over_in_process']} ms (p50) to a "
        f"generation, {added['over_pipe']} ms more than the pipe to our own replicas. When a replica's process "
        f"was killed {recovery['kills']} times under load, capacity was back after {seconds} s; {recovery['lost']} "
        f"of {recovery['requests']} requests were lost."
    )
    return "\n".join([text, "", provenance(figure, f"{figure['questions']['count']} questions")])


def render_scaling(figure: dict[str, Any]) -> str:
    """Return what signals of the first host show past capacity, and how soon scaling laws recover."""
    name, gateway = next(iter(figure["gateways"].items()))
    lines = [
        f"**{name}**, {gateway['mean_ms']} ms per plan on average, {gateway['p99_ms']} ms at the 99th percentile:",
        "",
        "| load, times capacity | by rule | offered work | p99 of answers | outstanding per replica |",
        "|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {row['load']} | {row['by_rule_share']:.1%} | {row['offered_work']} | {row['answers_p99_ms']:.0f} ms "
        f"| {row['outstanding_per_replica']} |"
        for row in gateway["loads"]
    ]
    lines.append("")
    surge = figure["surge"]
    said = f"{surge['times']:g} times the load within {surge['within_seconds']} s"
    lines += [f"**{surge['group']}**, {said}:", "", "| law | the model plans for 99% again after |", "|---|---|"]
    for law, seconds in surge["recovered_after_seconds"].items():
        shown = " and ".join("never" if each is None else f"{each} s" for each in dict.fromkeys(seconds))
        lines.append(f"| {law} | {shown} |")
    return "\n".join([*lines, "", f"<sub>`{figure['command']}`: simulated, with fixed seeds.</sub>"])


def render_neuron_loop(figure: dict[str, Any]) -> str:
    """Return forwards a plan and the host's time by the rows of a step."""
    rows = [
        "| rows per step | questions | forwards per plan (p99) | host CPU ms per plan (p99) | identical to greedy |",
        "|---:|---:|---:|---:|---:|",
    ]
    for name, run in figure["runs"].items():
        same = f"{run['identical_to_greedy']:,}" if "identical_to_greedy" in run else ""
        rows.append(
            f"| {name} | {run['questions']:,} | {run['forwards']} ({run['p99_forwards']}) | {run['host_ms_p50']} "
            f"({run['host_ms_p99']}) | {same} |"
        )
    return "\n".join([*rows, "", provenance(figure, "a graph emulated on a CPU, not on Neuron hardware")])


def render_turns(figure: dict[str, Any]) -> str:
    """Return what the prefix cache saves a conversation's turns, for each machine and kernel."""
    parts = []
    for name, one in figure["machines"].items():
        rows = [
            "| earlier messages | prompt tokens | of them cached | ms without the cache | ms with it | ratio |",
            "|---:|---:|---:|---:|---:|---:|",
        ]
        rows += [
            f"| {row['earlier']} | {row['prompt_tokens']:g} | {row['cached_tokens']:g} | {row['without']} "
            f"| {row['with']} | {row['with'] / row['without']:.2f} |"
            for row in one["turns"]
        ]
        ground = f"{one['conversations']} conversations, the processor's time of one thread at the median, in turns"
        parts.append("\n".join([f"**{name}**", "", *rows, "", provenance(one, ground)]))
    return "\n\n".join(parts)


def render_neighbour(figure: dict[str, Any]) -> str:
    """Return plans a second beside nobody and beside a neighbour that eats bandwidth, for each machine and kernel."""
    parts = []
    for name, one in figure["machines"].items():
        sizes = next(iter(one["beside"].values()))["plans_per_second"]
        rows = [
            "| on the other core | GB/s left | "
            + " | ".join(f"{size} share a forward" if size != "1" else "own forwards" for size in sizes)
            + " | best over own |",
            "|---|" + "---:|" * (len(sizes) + 2),
        ]
        rows += [
            f"| {who} | {row['gigabytes_per_second_left']} | "
            + " | ".join(str(rate) for rate in row["plans_per_second"].values())
            + f" | {row['best_over_own_copies']}x |"
            for who, row in one["beside"].items()
        ]
        ground = f"{one['questions']:,} questions in {one['rounds']} rounds, plans a second of one core"
        parts.append("\n".join([f"**{name}**", "", *rows, "", provenance(one, ground)]))
    return "\n\n".join(parts)
