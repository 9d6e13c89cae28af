"""`peakplan bench neuron-day`: what only a Neuron device can say, into a figure and a fleet file (docs/neuron.md).

A NeuronCore belongs to the process that used it first until that process ends, so each part is a process of its own.
`__main__.py` runs them in order and chooses, `parts.py` is what runs in them, `day.py` starts them and the service.
`on-host.sh` starts it all in the service's container.
"""
