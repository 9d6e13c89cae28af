"""NeuronCore names as the Neuron runtime takes them; it reads them once, when it is first used."""

VISIBLE_CORES = "NEURON_RT_VISIBLE_CORES"


def neuron_cores(number: int, cores: int) -> str:
    """Return the cores of a replica in the Neuron runtime's format: "2-3" are the second's of two cores each."""
    first, last = number * cores, (number + 1) * cores - 1
    return str(first) if first == last else f"{first}-{last}"


def core_count(visible_cores: str) -> int:
    """Return how many NeuronCores "0-1" or "2,3" names; 0 for none. Raises ValueError for any other format."""
    count = 0
    for part in filter(None, visible_cores.split(",")):
        first, _, last = part.partition("-")
        count += int(last or first) - int(first) + 1
    return count
